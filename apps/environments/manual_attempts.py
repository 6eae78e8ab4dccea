"""Manual attempts: seed a session, call its tools, verify an answer. Nothing is stored.

No session is kept between requests: each request seeds a new one and repeats all moves, which gives the same result in
deterministic environments.
"""

import logging
import time
from typing import Any

import msgspec
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError

from apps.accounts.audit_log import record
from apps.accounts.outages import release_connection
from apps.environments.environment_changes import asks_for_judge
from apps.environments.models import Environment
from apps.environments.resource_servers import connect_environment
from apps.gym.calls.time_limits import TimeLimit
from apps.gym.environments.task_generation import Move, Seen, generate_tasks
from apps.gym.errors import EnvironmentFault, GymError, TimedOut
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.loop.trials.players import PlayedPolicy
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.task_rows import check_task
from apps.gym.traces.events import ErrorRaised, TraceUnion, Verification
from apps.gym.traces.items import TaskRow, dump_json
from apps.gym.written.registry import find_kit
from apps.policies.policy_clients import open_outbound

logger = logging.getLogger(__name__)

PLAY_SECONDS = 60.0
"""Time limit of the whole attempt, because a user waits."""
MOST_MOVES = 50
_NO_PROMPT = "(no prompt)"
MAX_CHARACTERS = 500_000
"""Maximum characters of the row, and of all moves, as JSON."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """`events` are a trace like that of a rollout. The last event is ErrorRaised if the attempt failed."""

    events: list[TraceUnion]
    seconds: float

    @property
    def verdict(self) -> Verification | None:
        return next((event for event in self.events if isinstance(event, Verification)), None)

    @property
    def failure(self) -> ErrorRaised | None:
        return next((event for event in self.events if isinstance(event, ErrorRaised)), None)


class _OutOfMoves(Exception):
    """Raised when the moves are used up and the user chooses the next one."""


def play_session(
    *,
    environment: Environment,
    row: dict[str, Any],
    moves: list[Any],
    seed: int = 0,
    verify: bool = False,
    user: object,
) -> Played:
    """Play the moves, `{"text"}` or `{"calls": [{"name", "arguments"}]}` each, for at most PLAY_SECONDS.

    The attempt is verified after the last move if `verify` is set or the environment ended it. Errors of the
    environment are part of the result. Raise ValidationError by field.
    """
    task, read = _check(environment, row, moves, verify=verify)
    release_connection()
    played = async_to_sync(_play)(environment, task, read, seed, verify)
    record(user=user, action="environment.try", target=environment.slug, moves=len(read), verified=bool(played.verdict))
    return played


def suggest_row(environment: Environment) -> TaskRow:
    """Return an example task if no dataset has one: the first easy one of the environment's kit, else nothing."""
    kit = find_kit(environment.builtin)
    try:
        return next(generate_tasks(kit, count=1, difficulty="easy")) if kit else {}
    except EnvironmentFault:
        return {}


def _check(environment: Environment, row: object, moves: object, *, verify: bool) -> tuple[TaskRow, list[Move]]:
    errors: dict[str, list[str]] = {}
    task: TaskRow = {}
    read: list[Move] = []
    try:
        task = {} if _find_unsendable(row) else _read_row(row)
    except RowRefused as refused:
        errors["row"] = [f"{refused.message}."]
    try:
        read = msgspec.convert(moves, list[Move])
    except msgspec.ValidationError as problem:
        errors["moves"] = [f"{problem}."]
    if len(read) > MOST_MOVES:
        errors["moves"] = [f"At most {MOST_MOVES} actions."]
    if verify and not read and not errors:
        errors["moves"] = ["Nothing to verify. Add at least one action."]
    if verify and environment.verifies and asks_for_judge(environment):
        errors["verify"] = ["A judge model runs only in a collection, which counts its cost."]
    for name, given in (("row", row), ("moves", moves)):
        if name not in errors and (unsendable := _find_unsendable(given)):
            errors[name] = [unsendable]
    if errors:
        raise ValidationError(errors)
    return task, read


def _read_row(row: object) -> TaskRow:
    """Return the row, which may lack a prompt if only the verifier's fields matter. Raise RowRefused."""
    if not isinstance(row, dict):
        raise RowRefused("not_an_object", "must be an object")
    given = row if "responses_create_params" in row else {"responses_create_params": {"input": _NO_PROMPT}, **row}
    return check_task(dump_json(given), given).row


def _find_unsendable(given: object) -> str:
    try:
        size = len(dump_json(given))
    except TypeError as problem:
        return f"This cannot be sent as JSON: {problem}."
    return f"Give at most {MAX_CHARACTERS:,} characters." if size > MAX_CHARACTERS else ""


async def _play(environment: Environment, row: TaskRow, moves: list[Move], seed: int, verify: bool) -> Played:
    began = time.perf_counter()
    events: list[TraceUnion] = []
    outbound = open_outbound()
    try:
        with TimeLimit(PLAY_SECONDS):
            attempt = Attempt(
                row=row,
                server=connect_environment(environment, outbound),
                policy=PlayedPolicy(row, lambda seen: _next_move(seen, moves)),
                # One more step than moves requests the next move, which ends the attempt without verifying.
                harness=Harness(max_steps=max(1, len(moves) + (not verify))),
                seed=seed,
                elapsed=lambda: time.perf_counter() - began,
            )
            async for event in attempt.events():
                events.append(event)  # noqa: PERF401 - keep the events before a failure
    except _OutOfMoves:
        pass
    except TimeoutError:
        events.append(_failure(TimedOut(f"No result within {PLAY_SECONDS:g} s."), began))
    except GymError as error:
        events.append(_failure(error, began))
    except Exception as bug:
        # As in a worker, an error that ends the attempt is shown as its end.
        logger.exception("a manual attempt at %s failed", environment.slug)
        events.append(_failure(EnvironmentFault(f"{type(bug).__name__}: {bug}"), began))
    finally:
        await outbound.close()
    return Played(events=events, seconds=time.perf_counter() - began)


def _next_move(seen: Seen, moves: list[Move]) -> Move:
    if seen.turn >= len(moves):
        raise _OutOfMoves
    return moves[seen.turn]


def _failure(error: GymError, began: float) -> ErrorRaised:
    return ErrorRaised(kind=error.kind, message=str(error), duration=time.perf_counter() - began)
