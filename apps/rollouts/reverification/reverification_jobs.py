"""Verify stored rollouts again, without inference: ask for it, drop it, apply it, and do what waits."""

import math
from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.job_retries import is_due
from apps.accounts.models import User
from apps.environments.models import Environment
from apps.environments.resource_servers import connect_environment
from apps.gym.errors import EnvironmentFault
from apps.gym.loop.reverification import ask_reverify_mode
from apps.gym.request_refusals import Refusal
from apps.gym.resources.protocol import ReverifyMode
from apps.policies.policy_clients import open_outbound
from apps.rollouts.models import Collection, Reverification
from apps.rollouts.reverification.ownership import as_owner, requeue_quiet
from apps.rollouts.reverification.rescoring import rescore_rollouts, select_rollouts
from apps.rollouts.reverification.reward_application import write_rewards

FILTERS = ("judge_failures", "min_reward", "max_reward", "stop_reason", "error_kind", "ids")
MAX_IDS = 1_000
TURN_SECONDS = 20.0
"""How long a worker stays with one while its other background jobs wait."""

State = Reverification.State


class ReverifyRefused(Refusal, code="reverify-refused"):
    """This cannot be verified again as it was asked; `argument` is the one to change."""


class CannotApply(Refusal, status=409, code="cannot-apply"):
    """The reverification is in no state for what was asked."""


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
    `error_kind`, `ids`. Raises ReverifyRefused: for an environment that verifies nothing, whose verifier needs the
    state of the attempt (unless forced, or its tool calls are replayed), or where no rollout is left.
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
    ids = filters.get("ids", [])
    if not isinstance(ids, list) or len(ids) > MAX_IDS or not all(type(one) is int and 0 < one < 2**63 for one in ids):
        raise ReverifyRefused(f"ids are a list of at most {MAX_IDS:,} numbers of rollouts.", "filters")
    return {name: value for name, value in filters.items() if value not in (None, "", False, [])}


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


def continue_reverification() -> bool:
    """Background job: verify or apply what waits, the longest untouched first. Return whether there was any."""
    requeue_quiet()
    waiting = Reverification.objects.filter(is_due(), Q(state=State.QUEUED) | Q(state=State.APPLYING, attempt=0))
    reverification = waiting.order_by("touched_at", "id").first()
    if reverification is None:
        return False
    work = write_rewards if reverification.state == State.APPLYING else rescore_rollouts
    as_owner(reverification, reverification.state, work, seconds=TURN_SECONDS)
    return True


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
