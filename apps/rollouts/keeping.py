"""Figures of what is large are kept: a page has those measured last at once, and a worker measures newer ones.

What is small is measured whenever somebody asks. Whether kept figures are of now is told by the counters of the engine,
which change with everything that changes a figure.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec
from django.db.models import Count, Q, Sum
from django.utils import timezone

from apps.policies.models import PolicyModel
from apps.rollouts.leasing import live_workers
from apps.rollouts.measuring import CollectionMetrics, measure_collection
from apps.rollouts.models import Collection, KeptFigures, Reverification
from apps.rollouts.tracking import VersionReward, track_versions

Figures = TypeVar("Figures")
Owner = Collection | PolicyModel

AT_ONCE = 2_000
"""Rollouts of a collection that are measured while somebody waits."""
VERSIONS_AT_ONCE = 20_000
"""Rewards of a policy model that are."""
SHARE = 4
"""What goes on is measured anew after so many times what it took: no more than a fifth of the time."""
_FORM = 1  # raise it when a figure of the same name means something else
_FORSAKEN = timedelta(minutes=10)
_PATIENCE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Kept(Generic[Figures]):
    """`figures` is None while nothing was ever measured; `is_fresh` says that they are of now."""

    figures: Figures | None
    is_fresh: bool
    measured_at: datetime | None = None


def read_metrics(collection: Collection, *, may_wait: bool) -> Kept[CollectionMetrics]:
    """`may_wait` lets them be measured here where no worker would."""
    if collection.total <= AT_ONCE:
        return Kept(measure_collection(collection), is_fresh=True)
    return _read(collection, CollectionMetrics, may_wait=may_wait)


def fresh_metrics(collection: Collection) -> CollectionMetrics:
    """Of now, measured here where no kept ones are: for whoever would rather wait than have old ones."""
    if collection.total <= AT_ONCE:
        return measure_collection(collection)
    row, _ = KeptFigures.objects.get_or_create(**_of(collection))
    kept: CollectionMetrics | None = _decode(row, CollectionMetrics)
    if kept is None or row.counted != _count(collection):
        _measure(row, collection)
        kept = _decode(row, CollectionMetrics)
    assert kept is not None
    return kept


def read_versions(policy_model: PolicyModel) -> Kept[list[VersionReward]]:
    rewarded = policy_model.collections.aggregate(total=Sum("rewarded", default=0))["total"]
    if rewarded <= VERSIONS_AT_ONCE:
        return Kept(track_versions(policy_model=policy_model), is_fresh=True)
    return _read(policy_model, list[VersionReward], may_wait=True)


def _read(owner: Owner, kind: Any, *, may_wait: bool) -> Kept[Any]:
    row, _ = KeptFigures.objects.get_or_create(**_of(owner))
    kept = _decode(row, kind)
    if kept is not None and row.counted == _count(owner):
        return Kept(kept, is_fresh=True, measured_at=row.measured_at)
    if not live_workers() or _waits_in_vain(row):
        if not may_wait:
            return Kept(kept, is_fresh=False, measured_at=row.measured_at)
        # Nobody else would measure them.
        _measure(row, owner)
        return Kept(_decode(row, kind), is_fresh=True, measured_at=row.measured_at)
    KeptFigures.objects.filter(pk=row.pk, wanted_at__isnull=True).update(wanted_at=timezone.now())
    return Kept(kept, is_fresh=False, measured_at=row.measured_at)


def _waits_in_vain(row: KeptFigures) -> bool:
    """Workers may live that do no chores."""
    patience = _PATIENCE + SHARE * timedelta(seconds=row.seconds)
    return row.claimed_at is None and row.wanted_at is not None and row.wanted_at < timezone.now() - patience


def _of(owner: Owner) -> dict[str, Any]:
    return {"collection": owner} if isinstance(owner, Collection) else {"policy_model": owner}


def _decode(row: KeptFigures, kind: Any) -> Any:
    """None for what is not there, or was kept by a version that knew other figures."""
    try:
        return msgspec.json.decode(row.content, type=kind) if row.content else None
    except msgspec.DecodeError:
        return None


_COUNTERS = ("total", "completed", "failed", "cancelled", "retried", "rewarded", "reward_sum", "cost", "judge_tokens")


def _count(owner: Owner) -> str:
    """What changes with every figure: the engine's counters, and the rewards that verifying again has changed."""
    collections = Collection.objects.filter(pk=owner.pk) if isinstance(owner, Collection) else owner.collections.all()
    sums = collections.order_by().aggregate(places=Count("pk"), **{name: Sum(name, default=0) for name in _COUNTERS})
    applied = Reverification.objects.filter(collection__in=collections, applied__gt=0).order_by()
    sums |= applied.aggregate(applied=Sum("applied", default=0), applications=Count("pk"))
    return " ".join([f"v{_FORM}", *(f"{name}={value!r}" for name, value in sums.items())])[:300]


def measure_wanted() -> bool:
    """Worker chore: measure what somebody waits for the longest; says whether there was any."""
    now = timezone.now()
    free = Q(claimed_at__isnull=True) | Q(claimed_at__lt=now - _FORSAKEN)
    waiting = KeptFigures.objects.filter(free, wanted_at__isnull=False).select_related("collection", "policy_model")
    for row in waiting.order_by("wanted_at", "pk")[:20]:
        if row.measured_at and row.measured_at + SHARE * timedelta(seconds=row.seconds) > now:
            continue
        if KeptFigures.objects.filter(free, pk=row.pk).update(claimed_at=now):
            owner = row.collection or row.policy_model
            assert owner is not None
            _measure(row, owner)
            return True
    return False


def _measure(row: KeptFigures, owner: Owner) -> None:
    # Counted before: what ends meanwhile makes them old, never wrongly fresh.
    counted, began = _count(owner), time.monotonic()
    figures: Any = measure_collection(owner) if isinstance(owner, Collection) else track_versions(policy_model=owner)
    row.counted, row.content = counted, msgspec.json.encode(figures).decode()
    row.seconds, row.measured_at = time.monotonic() - began, timezone.now()
    row.wanted_at = row.claimed_at = None
    KeptFigures.objects.filter(pk=row.pk).update(
        counted=row.counted,
        content=row.content,
        seconds=row.seconds,
        measured_at=row.measured_at,
        wanted_at=None,
        claimed_at=None,
    )
