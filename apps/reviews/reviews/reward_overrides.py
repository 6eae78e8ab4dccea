"""Override rewards. The verifier's reward and earlier overrides are kept."""

import math
from collections.abc import Iterable
from datetime import datetime

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.models import User
from apps.gym.request_refusals import Refusal
from apps.gym.rubric_criteria import MAX_NUMBER
from apps.policies.redacted_fields import redact_input
from apps.reviews.models import RewardOverride
from apps.rollouts.models import Rollout

MAX_REASON = 2_000


class OverrideRefused(Refusal, code="override-refused"):
    """Raised if the rollout has not ended, the reward is not finite, the reason is missing, or there is no override."""


class OverrideEnded(OverrideRefused, status=409, code="override-ended"):
    """Raised if another user has withdrawn or replaced the override."""


class ActiveOverride(msgspec.Struct, frozen=True, kw_only=True):
    """The active override of a rollout, with author, time and reason."""

    id: int
    rollout: int
    reward: float
    original_reward: float | None
    reason: str
    author: str
    at: datetime


def override_reward(*, rollout: Rollout, reward: float, reason: str, author: User) -> RewardOverride:
    """Override the verifier's reward. Raise OverrideRefused.

    An earlier override is kept as history.
    """
    if rollout.status != Rollout.Status.COMPLETED:
        raise OverrideRefused(f"Rollout {rollout.pk} is {rollout.status}: only completed rollouts have a reward.")
    if not math.isfinite(reward) or abs(reward) > MAX_NUMBER:
        raise OverrideRefused(f"The reward is a finite number within ±{MAX_NUMBER:,}.")
    reason = _clean(reason)
    try:
        with transaction.atomic():
            active = RewardOverride.objects.select_for_update().filter(rollout=rollout, ended_at__isnull=True)
            if (before := active.first()) is not None:
                _end(before, author, RewardOverride.End.REPLACED)
            given = RewardOverride.objects.create(
                rollout=rollout, reward=reward, original_reward=rollout.reward, reason=reason, author=author
            )
            record(
                user=author,
                action="reward_override.create",
                target=f"rollout {rollout.pk}",
                before={"reward": before.reward if before else rollout.reward},
                after={"reward": reward},
                reason=reason,
            )
    except IntegrityError:
        # A concurrent request was faster: the database allows one active override.
        raise OverrideRefused("Another user just overrode this reward. Check it first.") from None
    return given


def withdraw_override(*, override: RewardOverride, user: User) -> RewardOverride:
    """Withdraw the override, so that the verifier's reward counts again.

    Raise OverrideEnded if it is no longer active, because the user has not seen the current one.
    """
    with transaction.atomic():
        locked = RewardOverride.objects.select_for_update().get(pk=override.pk)
        if locked.ended_at is not None:
            raise OverrideEnded(_describe_end(locked))
        _end(locked, user, RewardOverride.End.WITHDRAWN)
        record(
            user=user,
            action="reward_override.withdraw",
            target=f"rollout {locked.rollout_id}",
            override=locked.pk,
            before={"reward": locked.reward},
            after={"reward": locked.rollout.reward},
        )
    return locked


def read_overrides(rollout_ids: Iterable[int]) -> dict[int, ActiveOverride]:
    """Return the active overrides by rollout id, with one query.

    For all rollouts of a collection, pass a subquery instead of a list of ids.
    """
    active = RewardOverride.objects.filter(rollout__in=rollout_ids, ended_at__isnull=True)
    rows = active.values_list(
        "rollout_id", "id", "reward", "original_reward", "reason", "author__username", "created_at"
    )
    return {
        rollout_id: ActiveOverride(
            id=pk, rollout=rollout_id, reward=reward, original_reward=original, reason=reason, author=by or "", at=at
        )
        for rollout_id, pk, reward, original, reason, by, at in rows
    }


def _find_active(rollout: Rollout) -> RewardOverride | None:
    return RewardOverride.objects.filter(rollout=rollout, ended_at__isnull=True).first()


def _end(active: RewardOverride, user: User, how: str) -> None:
    active.ended_at, active.ended_by, active.ended_how = timezone.now(), user, how
    active.save(update_fields=["ended_at", "ended_by", "ended_how"])


def _describe_end(override: RewardOverride) -> str:
    if override.ended_how == RewardOverride.End.WITHDRAWN:
        return f"Override {override.pk} was already withdrawn."
    active = _find_active(override.rollout)
    now = f": {active.pk} is now active with reward {active.reward:g}" if active else ""
    return f"Override {override.pk} was replaced in the meantime{now}. Check it first."


def _clean(reason: str) -> str:
    reason = reason.strip()
    if not reason:
        raise OverrideRefused("Give a reason for this reward.")
    if len(reason) > MAX_REASON:
        raise OverrideRefused(f"A reason has at most {MAX_REASON:,} characters; this one has {len(reason):,}.")
    return redact_input(reason)
