"""What came of a collection, as its page shows it."""

from dataclasses import dataclass

from apps.dashboard.histogram import Histogram, draw_histogram
from apps.rollouts.measuring import CollectionMetrics, measure_collection
from apps.rollouts.models import Collection

_COMPARED = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Results:
    """Lists of pairs instead of dicts: a template would take a key called `items` for the method."""

    metrics: CollectionMetrics
    margin_of_error: float | None  # half the 95 % interval of the mean reward
    pass_at_k: list[tuple[int, float]]
    groups: list[tuple[str, int]]
    stop_reasons: list[tuple[str, int]]
    errors: list[tuple[str, int]]
    components: list[tuple[str, float]]
    histogram: Histogram


def read_results(collection: Collection) -> Results:
    metrics = measure_collection(collection)
    return Results(
        metrics=metrics,
        margin_of_error=_half(metrics.confidence),
        pass_at_k=_few(metrics.pass_at_k),
        groups=[(name, metrics.groups.get(name, 0)) for name in ("never", "sometimes", "always")],
        stop_reasons=_by_count(metrics.stop_reasons),
        errors=_by_count(metrics.errors),
        components=sorted(metrics.components.items()),
        histogram=draw_histogram(metrics.histogram),
    )


def _few(shares: dict[int, float]) -> list[tuple[int, float]]:
    """The small k that papers compare by, and the largest; with many repeats the others would fill the page."""
    return [(k, share) for k, share in sorted(shares.items()) if k in _COMPARED or k == max(shares)]


def _half(interval: tuple[float, float] | None) -> float | None:
    return None if interval is None else (interval[1] - interval[0]) / 2


def _by_count(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))
