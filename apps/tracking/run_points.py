"""Background job: store a point of each tracked run while its collection runs, and the last one when it has finished.

Points are stored whether or not the tracker can be reached, so none is lost while it is down.
"""

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Min
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.rollouts.metrics.cached_figures import fresh_figures
from apps.rollouts.metrics.model_versions import VersionReward, track_versions
from apps.rollouts.models import Collection, Rollout
from apps.tracking.models import TrackedPoint, TrackedRun
from apps.tracking.point_values import collection_values, version_values

EVERY = timedelta(seconds=10)
"""Minimum time between two points."""
SHARE = 20
"""A collection is measured again after this multiple of the time that measuring it took."""
POINTS = 200
"""About the number of points of a collection, however many rollouts it has."""


@background_job(
    thread="tracking", waiting=lambda: TrackedRun.objects.filter(state=TrackedRun.State.ACTIVE, is_complete=False)
)
def record_points() -> bool:
    """Background job: measure the collection of one run that is due. Return True if there was one."""
    now = timezone.now()
    active = TrackedRun.objects.filter(state=TrackedRun.State.ACTIVE, is_complete=False)
    run = active.filter(measure_at__lte=now).select_related("collection__policy_model").order_by("measure_at").first()
    if run is None:
        return False
    # The claim: another worker measures this run only after EVERY.
    if active.filter(pk=run.pk, measure_at=run.measure_at).update(measure_at=now + EVERY):
        began = time.monotonic()
        record_point(run)
        busy = timedelta(seconds=SHARE * (time.monotonic() - began))
        active.filter(pk=run.pk).update(measure_at=now + max(EVERY, busy))
    return True


def record_point(run: TrackedRun) -> None:
    """Store a point if enough rollouts have finished since the last one, or if the collection has finished."""
    collection = run.collection
    # Read before the figures, so that the last point covers all rollouts.
    collection.refresh_from_db()
    is_final = collection.is_finished
    stored = run.points.filter(of_version=False).order_by("-number").first()
    if not is_final and not _is_due(collection, stored):
        return
    figures = fresh_figures(collection)
    ended = sum(int(figures.counters[name]) for name in ("completed", "failed", "cancelled"))
    values = collection_values(figures.metrics)
    points = []
    if stored is None or (stored.step, stored.values) != (ended, values):
        points.append({"step": ended, "values": values, "at": figures.as_of})
    points += _version_points(run, is_final=is_final)
    _store(run, points, is_final=is_final)


def _is_due(collection: Collection, stored: TrackedPoint | None) -> bool:
    return collection.ended >= (stored.step if stored else 0) + max(1, collection.total // POINTS)


def _store(run: TrackedRun, points: list[dict[str, Any]], *, is_final: bool) -> None:
    """Append the points, unless the run was stopped or another worker stored points meanwhile."""
    active = TrackedRun.objects.filter(
        pk=run.pk, state=TrackedRun.State.ACTIVE, is_complete=False, recorded=run.recorded
    )
    with transaction.atomic():
        if active.update(recorded=run.recorded + len(points), is_complete=is_final):
            TrackedPoint.objects.bulk_create(
                TrackedPoint(run=run, number=number, **point) for number, point in enumerate(points, run.recorded)
            )


def _version_points(run: TrackedRun, *, is_final: bool) -> Iterator[dict[str, Any]]:
    """Yield a point for each model version whose rollouts have all finished, and which has changed since its last."""
    collection = run.collection
    versions = track_versions(policy_model=collection.policy_model, collection=collection)
    if [one.version for one in versions] in ([], [""]):
        return
    stored = {point.version: point for point in run.points.filter(of_version=True).order_by("number")}
    settled = len(versions) if is_final else _count_settled(collection, versions)
    number = -1
    for version in versions[:settled]:
        known = stored.get(version.version)
        number = known.step if known else number_version(version.version, after=number)
        values = version_values(version)
        if known is None or known.values != values:
            yield {
                "step": number,
                "values": values,
                "at": timezone.now(),
                "of_version": True,
                "version": version.version,
            }


def number_version(version: str, *, after: int) -> int:
    """Return the number at the end of the version (`step-200`: 200) if it is larger than `after`, else the next one."""
    digits = "".join(reversed(list(itertools.takewhile(str.isdecimal, reversed(version)))))
    number = int(digits) if digits.isascii() and 0 < len(digits) <= 15 else 0
    return number if digits and number > after else after + 1


def _count_settled(collection: Collection, versions: list[VersionReward]) -> int:
    """Return how many versions, from the first, have no rollouts that still run.

    Running rollouts do not store their version yet. They are of a later version if they started after its first one.
    """
    rollouts = Rollout.objects.filter(collection=collection).order_by()
    running = rollouts.filter(status=Rollout.Status.RUNNING).aggregate(oldest=Min("started_at"))["oldest"]
    names = [one.version for one in versions[1:]]
    started = dict(
        rollouts.filter(model_version__in=names).values_list("model_version").annotate(first=Min("started_at"))
    )
    followed = (started.get(one.version) for one in versions[1:])
    return sum(1 for _ in itertools.takewhile(lambda first: running is None or (first and first <= running), followed))
