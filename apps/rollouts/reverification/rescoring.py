"""Verify the rollouts of a reverification again in chunks, and store the old and new reward of each."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.utils import timezone

from apps.accounts.job_retries import progress_fields
from apps.environments.models import Environment
from apps.environments.resource_servers import connect_environment, connect_judge, connect_verifier
from apps.gym import process_exit
from apps.gym.calls.outbound import Outbound
from apps.gym.errors import EnvironmentFault, GymError, VerifierError
from apps.gym.loop.reverification import Verdict, verify_again
from apps.gym.metrics.majority_at_k import MAX_ANSWER
from apps.gym.resources.protocol import ResourceServer
from apps.gym.rollout_files.rollout_rows import judged_stop_reason
from apps.gym.storable import clean_line, clean_names
from apps.gym.tasks.prompt_templates import PromptTemplate, apply_template_or_fail
from apps.gym.traces.events import TraceUnion, encode_event
from apps.gym.traces.items import TaskRow
from apps.gym.wires.pricing import FREE
from apps.policies.installation_redactor import fresh_redactor
from apps.policies.policy_clients import open_outbound
from apps.rollouts.engine.circuit_breakers import Endpoint
from apps.rollouts.engine.running import MAX_MESSAGE, RolloutStats
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.models import Collection, Reverification, ReverifiedReward, Rollout
from apps.rollouts.reverification.ownership import Owner
from apps.tasks.stored_images import full_row

CHUNK = 100
"""Rollouts that are verified together and stored in one transaction."""
IN_FLIGHT = 32
HEARTBEAT_SECONDS = 2.0
GIVEN_UP = 50
"""Consecutive failures of the environment after which the reverification fails."""
SAME = 1e-9
FAILED_BY_VERIFIER = ("judge_error", "verifier_error", "verifier_timeout")

State = Reverification.State


def select_rollouts(collection: Collection, filters: dict[str, Any]) -> QuerySet[Rollout]:
    """Return the rollouts that match the filters and reached their verifier, even if it failed."""
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
    if filters.get("ids"):
        rollouts = rollouts.filter(pk__in=filters["ids"])
    return rollouts


class Piece(NamedTuple):
    """A stored rollout with what its verifier reads."""

    rollout: Rollout
    row: TaskRow
    events: list[TraceUnion]
    stop_reason: str


def rescore_rollouts(owner: Owner) -> None:
    """Verify all selected rollouts. Raise FencedOut, Leaving, or GymError if the environment cannot be used."""
    reverification = Reverification.objects.select_related("collection__environment__judge_model").get(pk=owner.row.pk)
    environment = reverification.collection.environment
    throttles = Throttles()
    # One event loop for all chunks, because connections belong to a loop. Database queries run outside the loop.
    with asyncio.Runner() as runner:
        outbound, server = runner.run(_connect(environment, throttles, replays=reverification.replays))
        try:
            _verify_chunks(owner, reverification, server, runner)
        finally:
            runner.run(throttles.close())
            runner.run(outbound.close())
    owner.write(state=State.READY, finished_at=timezone.now())


async def _connect(environment: Environment, throttles: Throttles, *, replays: bool) -> tuple[Outbound, ResourceServer]:
    outbound = open_outbound()
    try:
        model = environment.judge_model
        seats = asyncio.Semaphore(model.concurrency) if model else None
        of_judge = throttles.gate(Endpoint("policy_model", model.pk)) if model else None
        judge = connect_judge(environment, outbound, seats=seats, gate=of_judge)
        connect = connect_environment if replays else connect_verifier
        gate = throttles.gate(Endpoint("environment", environment.pk))
        return outbound, connect(environment, outbound, judge=judge, gate=gate)
    except BaseException:
        await outbound.close()
        raise


def _verify_chunks(
    owner: Owner, reverification: Reverification, server: ResourceServer, runner: asyncio.Runner
) -> None:
    chosen = select_rollouts(reverification.collection, reverification.filters).select_related("task").order_by("pk")
    last = reverification.rewards.aggregate(last=Max("rollout_id"))["last"] or 0
    broken = 0
    while chunk := list(chosen.filter(pk__gt=last)[:CHUNK]):
        pieces = [read_piece(rollout, reverification.collection) for rollout in chunk]
        verdicts = _verify_chunk(owner, reverification, server, runner, pieces)
        held = [isinstance(one.error, GymError) and bool(one.error.refused_by) for one in verdicts]
        refused = [*held, True].index(True)
        # A long pause or an exhausted quota is no result: these rollouts are verified again later.
        _store(owner, reverification, pieces[:refused], verdicts[:refused])
        if refused < len(verdicts):
            raise verdicts[refused].error or AssertionError
        last = chunk[-1].pk
        for verdict in verdicts:
            broken = broken + 1 if isinstance(verdict.error, EnvironmentFault) else 0
            if broken >= GIVEN_UP:
                raise EnvironmentFault(f"stopped after {GIVEN_UP} failures in a row: {verdict.error}")
        owner.pause_here()


def read_piece(rollout: Rollout, collection: Collection) -> Piece:
    """Return the stored trace of a rollout, and the row of its task."""
    template = msgspec.convert(collection.prompt_template, PromptTemplate)
    # Events after the end of the attempt belong to earlier reverifications.
    events = rollout.trace()
    row = apply_template_or_fail(template, full_row(rollout.task))
    return Piece(rollout, row, events, rollout.stop_reason or judged_stop_reason(events))


def _verify_chunk(
    owner: Owner,
    reverification: Reverification,
    server: ResourceServer,
    runner: asyncio.Runner,
    pieces: Sequence[Piece],
) -> list[Verdict]:
    """Return the verdicts in the order of the rollouts.

    A judge may take minutes, so this renews the heartbeat and checks for cancellation meanwhile.
    """
    tasks = runner.run(_start(pieces, server, reverification))
    try:
        while runner.run(_wait(tasks)):
            process_exit.check()
            owner.write()
    except BaseException:
        runner.run(_cancel(tasks))
        raise
    return [task.result() for task in tasks]


async def _start(
    pieces: Sequence[Piece], server: ResourceServer, reverification: Reverification
) -> list[asyncio.Task[Verdict]]:
    collection, number = reverification.collection, reverification.pk
    return start_verifying(pieces, server, collection, replay=reverification.replays, number=number)


def start_verifying(
    pieces: Sequence[Piece], server: ResourceServer, collection: Collection, *, replay: bool = False, number: int = 0
) -> list[asyncio.Task[Verdict]]:
    """Start to verify rollouts again in the running event loop, as many at once as their environment allows."""
    seats = asyncio.Semaphore(min(IN_FLIGHT, collection.environment.concurrency))

    async def verify(piece: Piece) -> Verdict:
        async with seats:
            return await verify_again(
                server=server,
                row=piece.row,
                events=piece.events,
                stop_reason=piece.stop_reason,
                seed=piece.rollout.seed,
                seconds=collection.rollout_timeout,
                replay=replay,
                number=number,
            )

    return [asyncio.ensure_future(verify(piece)) for piece in pieces]


async def _wait(tasks: Sequence[asyncio.Task[Verdict]]) -> bool:
    """Wait until the next heartbeat is due. Return True if some tasks are still running."""
    _, going_on = await asyncio.wait(tasks, timeout=HEARTBEAT_SECONDS)
    return bool(going_on)


async def _cancel(tasks: Sequence[asyncio.Task[Verdict]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _store(owner: Owner, reverification: Reverification, pieces: Sequence[Piece], verdicts: Sequence[Verdict]) -> None:
    rewards = [_reward(reverification, piece, verdict) for piece, verdict in zip(pieces, verdicts, strict=True)]
    failed = sum(bool(reward.error_kind) for reward in rewards)
    judge = reverification.collection.environment.judge_model
    prices = judge.prices if judge else FREE
    with transaction.atomic():
        ReverifiedReward.objects.bulk_create(rewards)
        owner.write(
            **progress_fields(),
            verified=F("verified") + len(rewards) - failed,
            failed=F("failed") + failed,
            changed=F("changed") + sum(reward.changed for reward in rewards),
            cost=F("cost") + sum(prices.cost(call.usage) for verdict in verdicts for call in verdict.judge_calls),
        )


def _reward(reverification: Reverification, piece: Piece, verdict: Verdict) -> ReverifiedReward:
    rollout, verification, error = piece.rollout, verdict.verification, verdict.error
    redactor = fresh_redactor()
    events: list[TraceUnion] = [*verdict.judge_calls, *([verification] if verification else [])]
    kept = ReverifiedReward(
        reverification=reverification,
        rollout=rollout,
        attempt=rollout.attempt,
        old_status=rollout.status,
        old_reward=rollout.reward,
        old_components=rollout.components,
        stop_reason=piece.stop_reason[:32],
        events="\n".join(redactor.redact_json(encode_event(event))[0] for event in events),
    )
    if verification is None:
        kept.error_kind = error.kind if isinstance(error, GymError) else VerifierError.kind
        said_error = str(error) if isinstance(error, GymError) else f"{type(error).__name__}: {error}"
        shown, _ = redactor.redact_text(said_error)
        kept.error_message = shown.replace("\0", "").encode(errors="replace").decode()[:MAX_MESSAGE]
        return kept
    kept.new_reward, kept.new_components = (
        verification.reward,
        clean_names(redactor.redact_value(dict(verification.components))[0]),
    )
    stats = RolloutStats()
    for event in (*piece.events, verification):
        stats.add(event)
    kept.answer = clean_line(redactor.redact_text(stats.outcome()["answer"])[0], MAX_ANSWER)
    if verification.reward is not None and rollout.reward is not None:
        kept.difference = verification.reward - rollout.reward
    kept.changed = kept.difference is None or abs(kept.difference) > SAME or _differ(rollout, kept.new_components)
    return kept


def _differ(rollout: Rollout, components: dict[str, float]) -> bool:
    """Return True if a component that both rewards have differs. Components of one side only do not count."""
    old = rollout.components or {}
    return any(abs(float(old[name]) - value) > SAME for name, value in components.items() if name in old)
