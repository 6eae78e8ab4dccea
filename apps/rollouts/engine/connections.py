"""Build the objects that all rollouts of a collection share, from its row and snapshot."""

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from django.conf import settings
from django.db import DatabaseError

from apps.agents.agent_changes import find_mounts_problem
from apps.agents.models import Agent
from apps.environments.resource_servers import connect_environment, connect_judge
from apps.gym.boxes.command_spec import CommandSpec
from apps.gym.calls.observers import Observer, Outcome
from apps.gym.calls.outbound import Outbound
from apps.gym.loop.agent_loop import Harness
from apps.gym.sandbox.choosing import the_sandbox
from apps.gym.wires.pricing import FREE
from apps.gym.wires.scores.score_cache import ReplyCache
from apps.policies.installation_redactor import fresh_redactor
from apps.policies.policy_clients import connect_policy
from apps.policies.weight_versions import WeightsInUse
from apps.rollouts.database_version import read_version
from apps.rollouts.engine.circuit_breakers import Endpoint
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.running import Setting
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.models import Collection

logger = logging.getLogger(__name__)

FRESH_SECONDS = 5.0
"""Seconds until the rows behind a cached setting are read again. Changes take effect then."""
REFUSED_SECONDS = 30.0
"""Seconds for which this worker ignores a collection that it cannot run."""
MAX_KNOWN = 1_000
"""Maximum number of cached settings. The cache is cleared when it is full."""


class CannotRun(Exception):
    """Raised if this worker cannot run the collection as configured. Its rollouts stay in the queue."""


class Watch(Protocol):
    """Callback for every try of a call: endpoint, slug, outcome and error message."""

    def __call__(self, endpoint: Endpoint, slug: str, outcome: Outcome, message: str) -> None: ...


def connect_setting(
    collection: Collection,
    outbound: Outbound,
    *,
    watch: Watch,
    seats: JudgeSeats,
    weights: WeightsInUse,
    throttles: Throttles,
    replies: ReplyCache | None = None,
) -> Setting:
    """Build the objects that all rollouts of a collection share.

    Harness, sampling, verifier, rubric and judge settings come from the snapshot, so that rewards stay comparable.
    Endpoints, keys, prices, limits and the judge model are current.
    """
    planned = {
        **collection.snapshot["agent"],
        "sampling": collection.snapshot["sampling"],
        "prompt": collection.prompt_template,
    }
    model, environment = collection.policy_model, collection.environment
    kept = collection.snapshot["environment"]
    environment.verifier = kept.get("verifier", environment.verifier)
    if kept.get("judge"):
        environment.judge_rubric, environment.judge_settings = kept["judge"]["rubric"], kept["judge"]["settings"]

    model_endpoint, environment_endpoint = Endpoint("policy_model", model.pk), Endpoint("environment", environment.pk)
    judged_by = environment.judge_model
    judge = None
    if judged_by is not None:
        endpoint = Endpoint("policy_model", judged_by.pk)
        judge = connect_judge(
            environment,
            outbound,
            _observer(watch, endpoint, judged_by.slug),
            seats.of(judged_by, model),
            weights=weights.of(judged_by),
            gate=throttles.gate(endpoint),
            replies=replies,
        )
    return Setting(
        policy_model_id=model.pk,
        environment_id=environment.pk,
        policy=connect_policy(
            model,
            outbound,
            observe=_observer(watch, model_endpoint, model.slug),
            weights=weights.of(model),
            gate=throttles.gate(model_endpoint),
        ),
        server=connect_environment(
            environment,
            outbound,
            observe=_observer(watch, environment_endpoint, environment.slug),
            judge=judge,
            gate=throttles.gate(environment_endpoint),
        ),
        harness=msgspec.convert(planned, Harness),
        rollout_timeout=collection.rollout_timeout,
        model_name=model.model_name,
        command=_read_command(collection.snapshot["agent"]),
        agent_server=_read_server(collection.snapshot["agent"]),
        max_attempts=collection.max_attempts,
        prices=model.prices,
        judge_model_id=judged_by.pk if judged_by else None,
        judge_prices=judged_by.prices if judged_by else FREE,
    )


def _observer(watch: Watch, endpoint: Endpoint, slug: str) -> Observer:
    def observe(outcome: Outcome, message: str = "") -> None:
        watch(endpoint, slug, outcome, message)

    return observe


def _read_command(planned: Mapping[str, Any]) -> CommandSpec | None:
    """Return the command of a command agent. Raises CannotRun if this worker cannot run it."""
    if planned.get("kind") != Agent.Kind.COMMAND:
        return None
    if settings.SANDBOX != "bubblewrap":
        raise CannotRun(f"Command agents need bubblewrap, but GYMWEB_SANDBOX is {settings.SANDBOX}.")
    if problem := the_sandbox().find_problem():
        raise CannotRun(problem)
    spec = msgspec.convert(planned["command_settings"], CommandSpec)
    if problem := find_mounts_problem(spec.mounts):
        raise CannotRun(problem)
    return spec


def _read_server(planned: Mapping[str, Any]) -> tuple[str, str] | None:
    if planned.get("kind") != Agent.Kind.SERVER:
        return None
    return planned["server_url"], planned["server_route"]


class Settings:
    """The cached settings of a worker, at most FRESH_SECONDS old. Used only on the database thread."""

    def __init__(self, outbound: Outbound, watch: Watch, seats: JudgeSeats, throttles: Throttles) -> None:
        self._outbound = outbound
        self._watch = watch
        self._seats = seats
        self._throttles = throttles
        self._weights = WeightsInUse()
        self._replies: dict[int, ReplyCache] = {}  # by collection
        self._followed: object = None  # version of the database whose model versions are known
        self._known: dict[int, tuple[float, Setting | CannotRun]] = {}  # with the time at which they expire

    def get(self, collection_id: int) -> Setting:
        """Return the setting of a collection. Raise CannotRun, for example for an unreadable key."""
        known = self._known.get(collection_id)
        if known is None or time.monotonic() > known[0]:
            known = (time.monotonic() + FRESH_SECONDS, self._connect(collection_id))
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
                self._replies.clear()
            self._known[collection_id] = known
        if isinstance(known[1], CannotRun):
            raise known[1]
        return known[1]

    def refuse(self, collection_id: int, why: str) -> None:
        """Leave a collection to other workers for REFUSED_SECONDS."""
        self._known[collection_id] = (time.monotonic() + REFUSED_SECONDS, CannotRun(why))

    def refusals(self) -> dict[str, str]:
        """Return the collections that this worker cannot run at present: {id: reason}. Thread-safe."""
        now = time.monotonic()
        return {
            str(pk): str(found)
            for pk, (until, found) in list(self._known.items())
            if isinstance(found, CannotRun) and now <= until
        }

    def _connect(self, collection_id: int) -> "Setting | CannotRun":
        rows = Collection.objects.select_related("policy_model", "environment__judge_model", "agent")
        collection = rows.get(pk=collection_id)
        # Load new keys into the redactor before calls use them: replies and errors may repeat a key.
        fresh_redactor()
        try:
            return connect_setting(
                collection,
                self._outbound,
                watch=self._watch,
                seats=self._seats,
                weights=self._weights,
                throttles=self._throttles,
                replies=self._replies.setdefault(collection_id, ReplyCache()),
            )
        except DatabaseError:
            raise  # an outage is not a problem of the collection
        except Exception as problem:
            reason = str(problem) if isinstance(problem, CannotRun) else f"{type(problem).__name__}: {problem}"
            logger.warning("collection %s cannot run on this worker: %r", collection_id, problem)
            return CannotRun(reason)

    def follow_versions(self) -> None:
        """Tell running rollouts the current version of their model."""
        version = read_version()
        if version is None or version != self._followed:
            self._weights.follow_versions()
            self._followed = version
