"""Cache the figures of large collections and models. Pages show cached figures while a worker computes new ones.

Small collections are measured on each request. Cached figures are fresh while the engine's counters are unchanged,
because every change of a figure also changes a counter.
"""

import hashlib
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from django.db import Error
from django.db.models import Count, Q, Sum
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import retry_until_available
from apps.policies.models import PolicyModel
from apps.rollouts.engine.worker_leases import claiming_workers
from apps.rollouts.metrics.labels import Facet
from apps.rollouts.metrics.model_versions import VersionReward, track_versions
from apps.rollouts.metrics.page_figures import STATE, PageFigures, count_running, measure_page
from apps.rollouts.models import Collection, KeptFigures, Recheck, Reverification, Rollout

Figures = TypeVar("Figures")
Owner = Collection | PolicyModel

AT_ONCE = 2_000
"""Maximum rollouts of a collection that is measured within a request."""
VERSIONS_AT_ONCE = 20_000
"""Maximum rewards of a policy model that is measured within a request."""
SHARE = 4
"""Figures of running collections are recomputed after this multiple of the time they took.

At most a fifth of the time is thus spent computing.
"""
_FORM = 6  # increase it when the meaning of a figure changes
_CLAIM_EXPIRES = timedelta(minutes=10)
_WORKER_PATIENCE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class CachedFigures(Generic[Figures]):
    """Cached figures, or None if never measured. `is_fresh` is True if they are up to date."""

    figures: Figures | None
    is_fresh: bool
    measured_at: datetime | None = None


def is_measured_on_request(collection: Collection) -> bool:
    """Return True if the collection is small enough to be measured on each request."""
    return collection.total <= AT_ONCE


def read_figures(collection: Collection, *facets: Facet, may_wait: bool) -> CachedFigures[PageFigures]:
    """Return the figures of a collection's page. Sets the cached counters and the current state on `collection`.

    `facets` are the breakdowns to include. `may_wait` allows measuring in this process if no worker does it.
    """
    if is_measured_on_request(collection):
        return CachedFigures(measure_page(collection, facets), is_fresh=True)
    row, _ = KeptFigures.objects.get_or_create(collection=collection)
    if missing := [facet for facet in facets if facet not in row.facets]:
        row.facets = [*row.facets, *missing]
        row.save(update_fields=["facets"])
    return _apply_counters(collection, _read(row, collection, PageFigures, may_wait=may_wait))


def fresh_figures(collection: Collection) -> PageFigures:
    """Return up-to-date figures, measuring in this process if the cached ones are not fresh."""
    if is_measured_on_request(collection):
        return measure_page(collection, ())
    row, _ = KeptFigures.objects.get_or_create(collection=collection)
    kept: PageFigures | None = _if_unchanged(row, collection, _decode(row, PageFigures))
    if kept is None:
        _measure(row, collection)
        kept = _decode(row, PageFigures)
    assert kept is not None
    return kept


def _apply_counters(collection: Collection, kept: CachedFigures[PageFigures]) -> CachedFigures[PageFigures]:
    """Set the cached counters and the current state on `collection`.

    The number of running rollouts is read separately, because a claim changes no counter.
    """
    collection.refresh_from_db(fields=STATE)
    if kept.figures is None:
        return kept
    for name, value in kept.figures.counters.items():
        setattr(collection, name, value)
    if not kept.is_fresh:
        return kept
    return replace(kept, figures=replace(kept.figures, running=count_running(collection)))


def read_versions(policy_model: PolicyModel) -> CachedFigures[list[VersionReward]]:
    rewarded = policy_model.collections.aggregate(total=Sum("rewarded", default=0))["total"]
    if rewarded <= VERSIONS_AT_ONCE:
        return CachedFigures(track_versions(policy_model=policy_model), is_fresh=True)
    row, _ = KeptFigures.objects.get_or_create(policy_model=policy_model)
    return _read(row, policy_model, list[VersionReward], may_wait=True)


def _read(row: KeptFigures, owner: Owner, kind: Any, *, may_wait: bool) -> CachedFigures[Any]:
    kept = _decode(row, kind)
    fresh = _if_unchanged(row, owner, kept)
    has_facets = not isinstance(fresh, PageFigures) or set(row.facets) <= set(fresh.breakdowns)
    if fresh is not None and has_facets:
        return CachedFigures(fresh, is_fresh=True, measured_at=row.measured_at)
    if not claiming_workers() or _is_overdue(row):
        if not may_wait:
            return CachedFigures(kept, is_fresh=False, measured_at=row.measured_at)
        # No background job would do it.
        _measure(row, owner)
        return CachedFigures(_decode(row, kind), is_fresh=True, measured_at=row.measured_at)
    KeptFigures.objects.filter(pk=row.pk, wanted_at__isnull=True).update(wanted_at=timezone.now())
    return CachedFigures(kept, is_fresh=False, measured_at=row.measured_at)


def _if_unchanged(row: KeptFigures, owner: Owner, kept: Any) -> Any:
    """Return the figures, dated now, if nothing has changed since they were measured, else None."""
    now = timezone.now()
    if kept is None or row.counted != _fingerprint(owner):
        return None
    return replace(kept, as_of=now) if isinstance(kept, PageFigures) else kept


def _is_overdue(row: KeptFigures) -> bool:
    """Return True if no worker has started measuring in time. Some workers run no background jobs."""
    patience = _WORKER_PATIENCE + SHARE * timedelta(seconds=row.seconds)
    return row.claimed_at is None and row.wanted_at is not None and row.wanted_at < timezone.now() - patience


def _decode(row: KeptFigures, kind: Any) -> Any:
    """Return the cached figures. None if nothing is cached or its format is outdated."""
    try:
        return msgspec.json.decode(row.content, type=kind) if row.content else None
    except msgspec.DecodeError:
        return None


_COUNTERS = ("total", "completed", "failed", "cancelled", "retried", "rewarded", "reward_sum", "cost", "judge_tokens")


def _fingerprint(owner: Owner) -> str:
    """Return a fingerprint that changes whenever a figure may change: counters and applied jobs."""
    collections = Collection.objects.filter(pk=owner.pk) if isinstance(owner, Collection) else owner.collections.all()
    traced = Count("pk", filter=Q(traces_deleted_at=None))
    sums = collections.order_by().aggregate(
        places=Count("pk"), traced=traced, **{name: Sum(name, default=0) for name in _COUNTERS}
    )
    applied = Reverification.objects.filter(collection__in=collections, applied__gt=0).order_by()
    sums |= applied.aggregate(applied=Sum("applied", default=0), applications=Count("pk"))
    rollouts = Rollout.objects.filter(collection__in=collections)
    sums["flagged"] = rollouts.filter(flagged=True).count()
    rechecks = Recheck.objects.filter(collection__in=collections).order_by()
    sums |= rechecks.aggregate(rechecked=Sum("applied", default=0))
    return hashlib.sha256(repr((_FORM, *sums.items())).encode()).hexdigest()


@background_job(thread="figures", waiting=lambda: KeptFigures.objects.filter(wanted_at__isnull=False))
def measure_wanted() -> bool:
    """Background job: measure the figures that were requested first. Return True if there were any."""
    now = timezone.now()
    free = Q(claimed_at__isnull=True) | Q(claimed_at__lt=now - _CLAIM_EXPIRES)
    waiting = KeptFigures.objects.filter(free, wanted_at__isnull=False).select_related("collection", "policy_model")
    for row in waiting.order_by("wanted_at", "pk")[:20]:
        if row.measured_at and row.measured_at + SHARE * timedelta(seconds=row.seconds) > now:
            continue
        if KeptFigures.objects.filter(free, pk=row.pk).update(claimed_at=now):
            owner = row.collection or row.policy_model
            assert owner is not None
            try:
                _measure(row, owner)
            except Error:
                # Release the claim, so that any worker can retry at once.
                retry_until_available(partial(KeptFigures.objects.filter(pk=row.pk).update, claimed_at=None))
                raise
            return True
    return False


def _measure(row: KeptFigures, owner: Owner) -> None:
    # Read the counters first, so that rollouts which end in the meantime mark the figures as outdated.
    counted, began = _fingerprint(owner), time.monotonic()
    figures = measure_page(owner, row.facets) if isinstance(owner, Collection) else track_versions(policy_model=owner)
    row.counted, row.content = counted, msgspec.json.encode(figures).decode()
    row.seconds, row.measured_at = time.monotonic() - began, timezone.now()
    row.wanted_at = row.claimed_at = None
    # An update, because the row may have been deleted with its collection.
    columns = ("counted", "content", "seconds", "measured_at", "wanted_at", "claimed_at")
    KeptFigures.objects.filter(pk=row.pk).update(**{name: getattr(row, name) for name in columns})
