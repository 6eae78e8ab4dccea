"""Verify stored rollouts again, without inference: queue it, do it in pieces, report what would change, apply it."""

import asyncio
import logging
import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync
from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.utils import timezone

from apps.accounts.auditing import record
from apps.accounts.models import User
from apps.environments.connecting import connect_environment, connect_judge
from apps.environments.models import Adapter, Environment
from apps.gym import leaving
from apps.gym.errors import EnvironmentFault, GymError, VerifierError
from apps.gym.events import ModelCall, TraceUnion, decode_event, encode_event, event_kind
from apps.gym.items import TaskRow
from apps.gym.outbound import Outbound
from apps.gym.pricing import FREE
from apps.gym.resources.protocol import ResourceServer, ReverifyMode
from apps.gym.reverifying import Verdict, ask_reverify_mode, verify_again
from apps.gym.rolloutfile import judged_stop_reason
from apps.gym.storable import clean_line, clean_names
from apps.gym.voting import MAX_ANSWER, comparable_answer
from apps.policies.connecting import open_outbound
from apps.rollouts.announcing import announce_collection
from apps.rollouts.models import Collection, Reverification, ReverifiedReward, Rollout, TraceEvent
from apps.rollouts.running import MAX_MESSAGE

logger = logging.getLogger(__name__)

CHUNK = 100
"""Rollouts verified together, and stored in one transaction."""
IN_FLIGHT = 32
MAX_ATTEMPTS = 3
QUIET = timedelta(minutes=5)
GIVEN_UP = 50
"""Failures of the environment in a row after which the rest is not tried."""
SAME = 1e-9
FAILED_BY_VERIFIER = ("judge_error", "verifier_error")
FILTERS = ("judge_failures", "min_reward", "max_reward", "stop_reason", "error_kind")

State = Reverification.State
Fate = ReverifiedReward.Fate


class ReverifyRefused(Exception):
    """This cannot be verified again as it was asked; `argument` is the one to change."""

    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(message)
        self.argument = argument


class CannotApply(Exception):
    """The reverification is in no state for what was asked."""


class _FencedOut(Exception):
    """Somebody else has taken it over, or cancelled it."""


# ── queueing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def queue_reverification(
    *,
    collection: Collection,
    filters: dict[str, Any] | None = None,
    force: bool = False,
    replay: bool = False,
    user: User | None = None,
) -> Reverification:
    """A reverification that a worker does. Its rollouts are those that were verified, and those whose verifier failed.

    Filters: `judge_failures` (only what failed with `judge_error`), `min_reward`, `max_reward`, `stop_reason`,
    `error_kind`. Raises ReverifyRefused: for an environment that verifies nothing, whose verifier needs the state of
    the attempt (unless forced, or its tool calls are replayed), or where no rollout is left.
    """
    given = _checked_filters(filters or {})
    environment = collection.environment
    if not environment.verifies:
        raise ReverifyRefused(f"{environment} leaves the judgement to people: there is no verifier to ask.")
    if collection.state == Collection.State.PLANNING:
        raise ReverifyRefused(f"{collection.label} is still being planned.")
    total = select_rollouts(collection, given).count()
    if not total:
        raise ReverifyRefused("No rollout of this collection passes these filters.", "filters")
    if not (force or replay):
        _check_mode(environment)
    with transaction.atomic():
        reverification = Reverification.objects.create(
            collection=collection, filters=given, forced=force, replays=replay, total=total, created_by=user
        )
        record(user=user, action="reverification.create", target=f"collection {collection.pk}", rollouts=total)
    return reverification


def select_rollouts(collection: Collection, filters: dict[str, Any]) -> QuerySet[Rollout]:
    """The rollouts that pass: attempts that reached their verifier, whatever it said."""
    reached = Q(status=Rollout.Status.COMPLETED) | Q(status=Rollout.Status.FAILED, error_kind__in=FAILED_BY_VERIFIER)
    rollouts = Rollout.objects.filter(reached, collection=collection)
    if filters.get("judge_failures"):
        rollouts = rollouts.filter(error_kind="judge_error")
    for name, lookup in (("min_reward", "reward__gte"), ("max_reward", "reward__lte")):
        if filters.get(name) is not None:
            rollouts = rollouts.filter(**{lookup: filters[name]})
    for name in ("stop_reason", "error_kind"):
        if filters.get(name):
            rollouts = rollouts.filter(**{name: filters[name]})
    return rollouts


def _checked_filters(filters: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(filters) - set(FILTERS)):
        raise ReverifyRefused(f"There is no filter {', '.join(unknown)}: {', '.join(FILTERS)}.", "filters")
    for name in ("min_reward", "max_reward"):
        value = filters.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if value is not None and not is_number:
            raise ReverifyRefused(f"{name} is a finite number.", "filters")
    for name in ("stop_reason", "error_kind"):
        if not isinstance(filters.get(name, ""), str):
            raise ReverifyRefused(f"{name} is text.", "filters")
    if not isinstance(filters.get("judge_failures", False), bool):
        raise ReverifyRefused("judge_failures is true or false.", "filters")
    return {name: value for name, value in filters.items() if value not in (None, "", False)}


def _check_mode(environment: Environment) -> None:
    mode = async_to_sync(_ask_mode)(environment)
    if mode == "stateless":
        return
    why = "needs the state of the attempt" if mode == "unsupported" else "does not say that it needs no state"
    raise ReverifyRefused(
        f"The verifier of {environment} {why}: verified from the trace alone, attempts may get rewards that they did "
        "not earn. Replay the tool calls, or force it.",
        "force",
    )


async def _ask_mode(environment: Environment) -> ReverifyMode:
    outbound = open_outbound()
    try:
        return await ask_reverify_mode(connect_environment(environment, outbound))
    except EnvironmentFault as fault:
        raise ReverifyRefused(str(fault)) from None
    finally:
        await outbound.close()


# ── doing ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def continue_reverification() -> bool:
    """Worker chore: verify or apply one that waits; says whether there was one."""
    requeue_quiet()
    waiting = Reverification.objects.filter(Q(state=State.QUEUED) | Q(state=State.APPLYING, attempt=0)).order_by("id")
    reverification = waiting.first()
    if reverification is None:
        return False
    finish_reverification(reverification=reverification)
    return True


def finish_reverification(*, reverification: Reverification) -> Reverification:
    """Do here and now what it waits for; of two that do, one does it."""
    reverification.refresh_from_db()
    if reverification.state == State.APPLYING:
        _as_owner(reverification, State.APPLYING, _apply)
    elif reverification.state == State.QUEUED:
        _as_owner(reverification, State.QUEUED, _verify)
    reverification.refresh_from_db()
    return reverification


def cancel_reverification(*, reverification: Reverification, user: User | None = None) -> Reverification:
    """Drop it, while it is verified or before it is applied. Cancelling twice is once."""
    open_ones = Reverification.objects.filter(
        pk=reverification.pk, state__in=[State.QUEUED, State.VERIFYING, State.READY]
    )
    with transaction.atomic():
        if open_ones.update(state=State.CANCELLED, finished_at=timezone.now()):
            record(user=user, action="reverification.cancelled", target=f"reverification {reverification.pk}")
    reverification.refresh_from_db()
    if reverification.state != State.CANCELLED:
        raise CannotApply(f"{reverification} is {reverification.state}: it cannot be cancelled.")
    return reverification


def apply_reverification(*, reverification: Reverification, user: User | None = None) -> Reverification:
    """Let a worker write the new rewards onto the rollouts. Applying twice is once."""
    ready = Reverification.objects.filter(pk=reverification.pk, state=State.READY)
    with transaction.atomic():
        if ready.update(state=State.APPLYING, attempt=0, touched_at=timezone.now()):
            target = f"reverification {reverification.pk}"
            record(user=user, action="reverification.applied", target=target, changed=reverification.changed)
    reverification.refresh_from_db()
    if reverification.state not in {State.APPLYING, State.APPLIED}:
        raise CannotApply(f"{reverification} is {reverification.state}: only one that is ready can be applied.")
    return reverification


def requeue_quiet() -> None:
    """Give what lost its worker to another."""
    quiet = Reverification.objects.filter(touched_at__lt=timezone.now() - QUIET)
    lost = quiet.filter(Q(state=State.VERIFYING) | Q(state=State.APPLYING, attempt__gt=0))
    if not lost.exists():
        return
    lost.filter(attempt__gte=MAX_ATTEMPTS).update(
        state=State.FAILED, message=f"Its worker was lost {MAX_ATTEMPTS} times.", finished_at=timezone.now()
    )
    lost.filter(state=State.VERIFYING).update(state=State.QUEUED)
    # An application goes on where it stopped: each rollout is changed in one transaction with its mark.
    lost.filter(state=State.APPLYING).update(attempt=0)


class _Owner(NamedTuple):
    """Whoever works at it now. `write` fails where somebody else does, or it was cancelled."""

    reverification: Reverification
    attempt: int
    state: str

    def write(self, **fields: Any) -> None:
        mine = Reverification.objects.filter(pk=self.reverification.pk, attempt=self.attempt, state=self.state)
        if not mine.update(**{"touched_at": timezone.now(), **fields}):
            raise _FencedOut


def _as_owner(reverification: Reverification, state: str, work: Any) -> None:
    doing = State.VERIFYING if state == State.QUEUED else State.APPLYING
    attempt = reverification.attempt + 1
    waiting = Reverification.objects.filter(pk=reverification.pk, state=state, attempt=reverification.attempt)
    if not waiting.update(state=doing, attempt=attempt, touched_at=timezone.now(), message=""):
        return
    owner = _Owner(reverification, attempt, doing)
    mine = Reverification.objects.filter(pk=reverification.pk, attempt=attempt, state=doing)
    try:
        work(owner)
    except leaving.Leaving:
        mine.update(state=state, attempt=attempt - 1)
        logger.info("reverification %s is left to another worker", reverification.pk)
    except _FencedOut:
        logger.info("reverification %s was taken over or cancelled", reverification.pk)
    except Exception as problem:
        # The row is where people look for what went wrong; the log keeps the traceback of what is no expected failure.
        if not isinstance(problem, GymError):
            logger.exception("reverification %s failed", reverification.pk)
        message = f"{type(problem).__name__}: {problem}"[:500]
        mine.update(state=State.FAILED, message=message, finished_at=timezone.now())


class _Piece(NamedTuple):
    rollout: Rollout
    row: TaskRow
    events: list[TraceUnion]
    stop_reason: str


def _verify(owner: _Owner) -> None:
    reverification = Reverification.objects.select_related("collection__environment__judge_model").get(
        pk=owner.reverification.pk
    )
    environment = reverification.collection.environment
    if environment.verifies_here and not reverification.replays:
        # The verifier reads the trace alone: whatever has the tools need not be there, nor hold a session.
        environment.adapter = Adapter.DECLARED
    # One loop for all of it, since connections belong to a loop; the database is asked outside of it.
    with asyncio.Runner() as runner:
        outbound, server = runner.run(_connect(environment))
        try:
            _verify_chunks(owner, reverification, server, runner)
        finally:
            runner.run(outbound.close())
    owner.write(state=State.READY, finished_at=timezone.now())


async def _connect(environment: Environment) -> tuple[Outbound, ResourceServer]:
    outbound = open_outbound()
    try:
        model = environment.judge_model
        seats = asyncio.Semaphore(model.concurrency) if model else None
        judge = connect_judge(environment, outbound, seats=seats)
        return outbound, connect_environment(environment, outbound, judge=judge)
    except BaseException:
        await outbound.close()
        raise


def _verify_chunks(
    owner: _Owner, reverification: Reverification, server: ResourceServer, runner: asyncio.Runner
) -> None:
    chosen = select_rollouts(reverification.collection, reverification.filters).select_related("task").order_by("pk")
    last = reverification.rewards.aggregate(last=Max("rollout_id"))["last"] or 0
    broken = 0
    while chunk := list(chosen.filter(pk__gt=last)[:CHUNK]):
        leaving.check()
        pieces = [_piece(rollout) for rollout in chunk]
        verdicts = runner.run(_verify_all(pieces, server, reverification))
        _store(owner, reverification, pieces, verdicts)
        last = chunk[-1].pk
        for verdict in verdicts:
            broken = broken + 1 if isinstance(verdict.error, EnvironmentFault) else 0
            if broken >= GIVEN_UP:
                raise EnvironmentFault(f"given up after {GIVEN_UP} failures in a row: {verdict.error}")


def _piece(rollout: Rollout) -> _Piece:
    # What stands behind the attempt's own end is of earlier reverifications.
    events = rollout.trace()
    return _Piece(rollout, rollout.task.row, events, rollout.stop_reason or judged_stop_reason(events))


async def _verify_all(
    pieces: Sequence[_Piece], server: ResourceServer, reverification: Reverification
) -> list[Verdict]:
    seats = asyncio.Semaphore(min(IN_FLIGHT, reverification.collection.environment.concurrency))

    async def verify(piece: _Piece) -> Verdict:
        async with seats:
            return await verify_again(
                server=server,
                row=piece.row,
                events=piece.events,
                stop_reason=piece.stop_reason,
                seed=piece.rollout.seed,
                seconds=reverification.collection.rollout_timeout,
                replay=reverification.replays,
                number=reverification.pk,
            )

    return await asyncio.gather(*map(verify, pieces))


def _store(
    owner: _Owner, reverification: Reverification, pieces: Sequence[_Piece], verdicts: Sequence[Verdict]
) -> None:
    rewards = [_reward(reverification, piece, verdict) for piece, verdict in zip(pieces, verdicts, strict=True)]
    failed = sum(bool(reward.error_kind) for reward in rewards)
    judge = reverification.collection.environment.judge_model
    prices = judge.prices if judge else FREE
    with transaction.atomic():
        ReverifiedReward.objects.bulk_create(rewards)
        owner.write(
            verified=F("verified") + len(rewards) - failed,
            failed=F("failed") + failed,
            changed=F("changed") + sum(reward.changed for reward in rewards),
            cost=F("cost") + sum(prices.cost(call.usage) for verdict in verdicts for call in verdict.judge_calls),
        )


def _reward(reverification: Reverification, piece: _Piece, verdict: Verdict) -> ReverifiedReward:
    rollout, verification, error = piece.rollout, verdict.verification, verdict.error
    events: list[TraceUnion] = [*verdict.judge_calls, *([verification] if verification else [])]
    kept = ReverifiedReward(
        reverification=reverification,
        rollout=rollout,
        attempt=rollout.attempt,
        old_status=rollout.status,
        old_reward=rollout.reward,
        old_components=rollout.components,
        stop_reason=piece.stop_reason[:32],
        events="\n".join(map(encode_event, events)),
    )
    if verification is None:
        kept.error_kind = error.kind if isinstance(error, GymError) else VerifierError.kind
        shown = str(error) if isinstance(error, GymError) else f"{type(error).__name__}: {error}"
        kept.error_message = shown.replace("\0", "").encode(errors="replace").decode()[:MAX_MESSAGE]
        return kept
    kept.new_reward, kept.new_components = verification.reward, clean_names(verification.components)
    said = [event.items for event in piece.events if isinstance(event, ModelCall)]
    kept.answer = clean_line(comparable_answer(said[-1] if said else [], verification.details), MAX_ANSWER)
    if verification.reward is not None and rollout.reward is not None:
        kept.difference = verification.reward - rollout.reward
    kept.changed = kept.difference is None or abs(kept.difference) > SAME or _differ(rollout, kept.new_components)
    return kept


def _differ(rollout: Rollout, components: dict[str, float]) -> bool:
    """Whether components that both have are others; one that only one side names is no change of the reward."""
    old = rollout.components or {}
    return any(abs(float(old[name]) - value) > SAME for name, value in components.items() if name in old)


# ── applying ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _apply(owner: _Owner) -> None:
    collection_id = owner.reverification.collection_id
    left = owner.reverification.rewards.filter(changed=True, fate="").order_by("pk")
    while chunk := list(left[:CHUNK]):
        leaving.check()
        with transaction.atomic():
            fates = [_apply_one(reward, collection_id) for reward in chunk]
            applied = fates.count(Fate.APPLIED)
            owner.write(applied=F("applied") + applied, stale=F("stale") + len(fates) - applied)
    owner.write(state=State.APPLIED, finished_at=timezone.now())
    announce_collection(collection_id)


def _apply_one(reward: ReverifiedReward, collection_id: int) -> str:
    """Give the rollout its new reward, unless it is no longer as it was verified."""
    as_it_was = Rollout.objects.filter(pk=reward.rollout_id, attempt=reward.attempt, status=reward.old_status)
    was = {"reward__isnull": True} if reward.old_reward is None else {"reward": reward.old_reward}
    changed = as_it_was.filter(**was).update(
        status=Rollout.Status.COMPLETED,
        reward=reward.new_reward,
        components=reward.new_components,
        stop_reason=reward.stop_reason,
        answer=reward.answer,
        error_kind="",
        error_message="",
    )
    fate = Fate.APPLIED if changed else Fate.STALE
    ReverifiedReward.objects.filter(pk=reward.pk).update(fate=fate)
    if changed:
        _append_events(reward)
        had_failed = int(reward.old_status == Rollout.Status.FAILED)
        Collection.objects.filter(pk=collection_id).update(
            failed=F("failed") - had_failed,
            completed=F("completed") + had_failed,
            rewarded=F("rewarded") + int(reward.old_reward is None),
            reward_sum=F("reward_sum") + (reward.new_reward or 0.0) - (reward.old_reward or 0.0),
        )
    return fate


def _append_events(reward: ReverifiedReward) -> None:
    events = TraceEvent.objects.filter(rollout=reward.rollout_id, attempt=reward.attempt)
    first = (events.aggregate(last=Max("seq"))["last"] or 0) + 1
    TraceEvent.objects.bulk_create(
        TraceEvent(
            rollout_id=reward.rollout_id,
            attempt=reward.attempt,
            seq=first + place,
            kind=event_kind(decode_event(payload)),
            payload=payload,
        )
        for place, payload in enumerate(reward.events.splitlines())
    )
