"""Queue, cancel, apply and run reverifications: verify stored rollouts again, without inference."""

from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.audit_log import record, update_row
from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import is_due
from apps.accounts.models import User
from apps.environments.models import Environment
from apps.environments.resource_servers import connect_environment
from apps.gym.errors import EnvironmentFault
from apps.gym.request_refusals import Refusal
from apps.gym.resources.protocol import ReverifyMode
from apps.gym.specs import spec_fields, spec_problems
from apps.policies.policy_clients import open_outbound
from apps.rollouts.models import Collection, Reverification
from apps.rollouts.reverification.ownership import as_owner, requeue_unresponsive
from apps.rollouts.reverification.rescoring import rescore_rollouts, select_rollouts
from apps.rollouts.reverification.reverification_spec import ReverificationFilters, ReverificationOrder
from apps.rollouts.reverification.reward_application import write_rewards
from apps.rollouts.steering.trace_deletion import explain_deleted_traces

TURN_SECONDS = 20.0
"""How long a worker works on one reverification while other background jobs wait."""

State = Reverification.State


class ReverifyRefused(Refusal, code="reverify-refused"):
    """Raised if this reverification is not possible. `argument` is the field to change."""


class CannotApply(Refusal, status=409, code="cannot-apply"):
    """Raised if the reverification cannot be applied in its current state."""


def queue_reverification(order: ReverificationOrder, *, user: User | None = None) -> Reverification:
    """Queue a reverification and return it.

    Raise ReverifyRefused if the environment has no verifier, if its verifier needs the state of the attempt (unless
    forced, or its tool calls are replayed), or if no rollout matches.
    """
    given, collection = _checked_filters(order.filters), order.collection
    environment = collection.environment
    if not environment.verifies:
        raise ReverifyRefused(f"{environment} has no verifier. Its rollouts are reviewed by people.")
    if collection.state == Collection.State.PLANNING:
        raise ReverifyRefused(f"{collection.label} is still being planned.")
    if problem := explain_deleted_traces([collection]):
        raise ReverifyRefused(problem, "collection")
    total = select_rollouts(collection, given).count()
    if not total:
        raise ReverifyRefused("No rollout of this collection matches these filters.", "filters")
    if not (order.force or order.replay):
        _check_mode(environment)
    with transaction.atomic():
        reverification = Reverification.objects.create(
            collection=collection,
            filters=given,
            forced=order.force,
            replays=order.replay,
            total=total,
            created_by=user,
        )
        record(user=user, action="reverification.create", target=f"collection {collection.pk}", rollouts=total)
    return reverification


def _checked_filters(filters: dict[str, Any]) -> dict[str, Any]:
    known = spec_fields(ReverificationFilters)
    if unknown := sorted(set(filters) - set(known)):
        raise ReverifyRefused(f"Unknown filter: {', '.join(unknown)}. Choose one of: {', '.join(known)}.", "filters")
    given = {name: value for name, value in filters.items() if value is not None}
    for name, problem in spec_problems(ReverificationFilters, given).items():
        raise ReverifyRefused(f"{name}: {problem}", "filters")
    return {name: value for name, value in given.items() if value is not False and value not in ("", [])}


def _check_mode(environment: Environment) -> None:
    mode = async_to_sync(_ask_mode)(environment)
    if mode == "stateless":
        return
    why = (
        "needs the state of the attempt" if mode == "unsupported" else "does not declare whether it needs session state"
    )
    raise ReverifyRefused(
        f"The verifier of {environment} {why}, so rewards from the trace alone can be wrong. Replay "
        "the tool calls, or force the reverification.",
        "force",
    )


async def _ask_mode(environment: Environment) -> ReverifyMode:
    outbound = open_outbound()
    try:
        return await connect_environment(environment, outbound).reverify_mode()
    except EnvironmentFault as fault:
        raise ReverifyRefused(str(fault)) from None
    finally:
        await outbound.close()


@background_job(
    waiting=lambda: Reverification.objects.filter(state__in=[State.QUEUED, State.VERIFYING, State.APPLYING])
)
def continue_reverification() -> bool:
    """Background job: verify or apply the reverification that has waited longest. Return True if there was one."""
    requeue_unresponsive()
    waiting = Reverification.objects.filter(is_due(), Q(state=State.QUEUED) | Q(state=State.APPLYING, attempt=0))
    reverification = waiting.order_by("touched_at", "id").first()
    if reverification is None:
        return False
    if reverification.state == State.APPLYING:
        as_owner(reverification, write_rewards, doing=State.APPLYING, seconds=TURN_SECONDS)
    else:
        as_owner(reverification, rescore_rollouts, doing=State.VERIFYING, seconds=TURN_SECONDS)
    return True


def cancel_reverification(*, reverification: Reverification, user: User | None = None) -> Reverification:
    """Cancel a reverification that is not applied yet. Idempotent."""
    unapplied = {"state__in": [State.QUEUED, State.VERIFYING, State.READY]}
    cancelled = {"state": State.CANCELLED, "finished_at": timezone.now()}
    update_row(reverification, cancelled, only=unapplied, user=user, action="reverification.cancelled")
    if reverification.state != State.CANCELLED:
        raise CannotApply(f"{reverification} is {reverification.state}: it cannot be cancelled.")
    return reverification


def apply_reverification(*, reverification: Reverification, user: User | None = None) -> Reverification:
    """Queue the new rewards to be written to the rollouts. Idempotent."""
    queued = {"state": State.APPLYING, "attempt": 0, "touched_at": timezone.now()}
    update_row(
        reverification,
        queued,
        only={"state": State.READY},
        user=user,
        action="reverification.applied",
        changed=reverification.changed,
    )
    if reverification.state not in {State.APPLYING, State.APPLIED}:
        raise CannotApply(f"{reverification} is {reverification.state}: only one that is ready can be applied.")
    return reverification
