"""Send the commands of external agents to the workers that run their attempts."""

import http.client
import random
import threading
import time
from typing import Any

import msgspec
from django.db.models import F

from apps.accounts.models import User
from apps.accounts.outages import release_connection
from apps.agents.models import Agent
from apps.gym.capture.captured_commands import Command
from apps.gym.capture.command_paths import COMMANDS, OPEN, Open
from apps.gym.request_refusals import Refusal
from apps.gym.traces.events import AgentEnd, decode_event
from apps.rollouts.command_keys import command_key
from apps.rollouts.engine.worker_leases import STATES_WITH_LEASE
from apps.rollouts.models import Collection, Rollout, TraceEvent, Worker

MAX_WAIT = 30
"""Maximum seconds that a request for an attempt waits for one."""
MAX_WAITING = 16
"""Requests for an attempt that wait at a time in one web process. Each holds a thread and a database connection."""
POLL_SECONDS = 0.25
MAX_ID = 2**63 - 1
ANSWER_SECONDS = 90.0
waiting_places = threading.BoundedSemaphore(MAX_WAITING)


class AttemptEnded(Refusal, status=409, code="attempt-ended"):
    """Raised for a command to an attempt that has ended, or ended in another way."""


class NotClaimable(Refusal, status=409, code="not-claimable"):
    """Raised if the collection gives no attempts: it is paused, or its agent is not external."""


class NoSeat(Refusal, status=503, code="no-seat"):
    """Raised if rollouts are queued, but no worker can run one now."""

    wait = 1


class CommandRefused(Refusal, status=502, code="attempt-not-begun"):
    """Raised if the worker could not obey, for example because the environment is down."""


class WorkerUnreachable(Refusal, status=503, code="worker-unreachable"):
    """Raised if the worker of an attempt gave no answer. The command may be repeated."""

    wait = 1


class NotYours(Refusal, status=403, code="not-yours"):
    """Raised if another user claimed the attempt."""


def open_attempt(collection: Collection, user: User, *, wait_seconds: float = 0) -> dict[str, Any] | None:
    """Begin an attempt at a queued rollout of the collection. Return its description, or None if none is queued.

    Waits up to `wait_seconds` for a rollout and a seat, unless MAX_WAITING requests wait already. Raises NotClaimable,
    NoSeat and CommandRefused.
    """
    _check_kind(collection.agent)
    offer, is_queued = _try_to_open(collection, user)
    if offer is None and wait_seconds and waiting_places.acquire(blocking=False):
        try:
            until = time.monotonic() + wait_seconds
            while offer is None and time.monotonic() < until:
                release_connection()
                time.sleep(POLL_SECONDS)
                offer, is_queued = _try_to_open(collection, user)
        finally:
            waiting_places.release()
    if offer is None and is_queued and collection.state == Collection.State.RUNNING:
        raise NoSeat("No worker has a free seat for an external agent. Finish open attempts or start a worker.")
    return offer


def _check_kind(agent: Agent) -> None:
    """Raise NotClaimable unless the agent is external."""
    if agent.kind != Agent.Kind.EXTERNAL:
        raise NotClaimable(
            f"Workers run the agent {agent.slug} themselves (kind: {agent.get_kind_display()}), so it has no attempts "
            "to take. Plan a collection with an agent of the kind external."
        )


def _try_to_open(collection: Collection, user: User) -> tuple[dict[str, Any] | None, bool]:
    """Return the description of a new attempt, if a worker begins one, and whether a rollout is queued."""
    collection.refresh_from_db(fields=["state"])
    if collection.state == Collection.State.PAUSED:
        raise NotClaimable("The collection is paused. Resume it.")
    is_queued = collection.rollouts.filter(status=Rollout.Status.QUEUED).exists()
    return (_ask_workers(collection, user) if is_queued else None), is_queued


def repeat_offer(known: dict[str, Any], user: User) -> dict[str, Any]:
    """Return the description of an open attempt again. Raises AttemptEnded."""
    return _command("describe", known["rollout"], known["attempt"], Command(command="finish"), user)


def extend_attempt(rollout: int, attempt: int, user: User) -> dict[str, Any]:
    """Extend the lease of an open attempt. Raises AttemptEnded, NotYours and WorkerUnreachable."""
    return _command("extend", rollout, attempt, Command(command="finish"), user)


def end_attempt(rollout: int, attempt: int, command: Command, user: User) -> dict[str, Any]:
    """Finish or fail an attempt. An equal command gets the same answer again.

    Raises AttemptEnded, NotYours and WorkerUnreachable.
    """
    command = msgspec.structs.replace(command, claimer=user.pk)
    try:
        return _command("end", rollout, attempt, command, user)
    except AttemptEnded:
        if rollout > MAX_ID:
            raise
        stored = TraceEvent.objects.filter(rollout_id=rollout, attempt=attempt, kind="agent_end").first()
        end = decode_event(stored.payload) if stored else None
        if not isinstance(end, AgentEnd) or end.sha256 != command.sha256:
            raise
        return {"rollout": rollout, "attempt": attempt, "command": end.command}


def _ask_workers(collection: Collection, user: User) -> dict[str, Any] | None:
    group = collection.policy_model.worker_group or collection.environment.worker_group
    workers = Worker.objects.filter(state=Worker.State.ACTIVE, group=group, busy__lt=F("seats"))
    addresses = list(workers.exclude(capture_address="").values_list("capture_address", flat=True))
    random.shuffle(addresses)
    body = msgspec.json.encode(Open(collection=collection.pk, claimer=user.pk))
    for address in addresses:
        try:
            status, answer = _send(address, OPEN, body)
        except OSError:
            continue  # The worker has just stopped.
        if status == 201:
            return answer
        if status != 204:
            raise CommandRefused(str(answer.get("detail", answer)))
    return None


def _command(name: str, rollout: int, attempt: int, command: Command, user: User) -> dict[str, Any]:
    rows = Rollout.objects.filter(pk=rollout, attempt=attempt, status=Rollout.Status.RUNNING)
    row = rows.select_related("collection__agent").first() if rollout <= MAX_ID else None
    if row is not None:
        _check_kind(row.collection.agent)
    lease = row.lease if row else None
    worker = Worker.objects.filter(pk=lease, state__in=STATES_WITH_LEASE).first() if lease else None
    if worker is None or not worker.capture_address:
        raise AttemptEnded("The attempt has ended.")
    body = msgspec.json.encode(msgspec.structs.replace(command, claimer=user.pk))
    try:
        status, answer = _send(worker.capture_address, f"{rollout}/{attempt}/{name}", body)
    except OSError:
        raise WorkerUnreachable("The worker of this attempt cannot be reached now. Repeat the request.") from None
    if status == 403:
        raise NotYours(answer["detail"])
    if status in (409, 410):
        raise AttemptEnded(answer["detail"])
    if status >= 400:
        raise WorkerUnreachable(str(answer.get("detail", answer)))
    return answer


def _send(address: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """Return status and answer of a worker. Raises OSError."""
    release_connection()
    connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
    try:
        connection.request("POST", f"{COMMANDS}/{path}", body, {"Authorization": f"Bearer {command_key()}"})
        reply = connection.getresponse()
        content = reply.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()
    try:
        return reply.status, msgspec.json.decode(content) if content else {}
    except msgspec.DecodeError:
        raise OSError(f"The worker answered {reply.status} without JSON.") from None
