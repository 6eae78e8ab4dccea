"""Name the metrics of a collection and of a model version for trackers. The API and the pages have equal numbers."""

import math
from collections.abc import Iterator
from typing import Any

from apps.rollouts.metrics.collection_figures import CollectionMetrics
from apps.rollouts.metrics.model_versions import VersionReward

_NUMBERS = (
    "completed",
    "failed",
    "cancelled",
    "rewarded",
    "missing",
    "tasks",
    "mean_reward",
    "std",
    "median",
    "min_reward",
    "max_reward",
    "standard_error",
    "pass_at_1",
    "no_answer",
    "cost",
    "mean_turns",
    "mean_duration",
    "mean_tool_calls",
)
_BY_K = ("pass_at_k", "best_of_k", "average_of_k", "majority_at_k")
_GROUPED = ("components", "groups", "stop_reasons", "errors", "tokens", "latency")
_OF_VERSION = ("mean_reward", "rollouts", "tasks", "solved")


def collection_values(figures: CollectionMetrics) -> dict[str, float]:
    """Return the metrics by name, with the names of the API: `mean_reward`, `pass_at_k/4`, `tokens/input`.

    Metrics by k have the powers of two and the largest k.
    """
    return _numbers(_name_values(figures))


def version_values(version: VersionReward) -> dict[str, float]:
    """Return the metrics of a model version: `by_version/mean_reward` and so on."""
    low, high = version.confidence or (None, None)
    named = [
        *((name, getattr(version, name)) for name in _OF_VERSION),
        ("confidence_low", low),
        ("confidence_high", high),
    ]
    return _numbers((f"by_version/{name}", value) for name, value in named)


def _name_values(figures: CollectionMetrics) -> Iterator[tuple[str, Any]]:
    yield from ((name, getattr(figures, name)) for name in _NUMBERS)
    if figures.confidence:
        yield from zip(("confidence_low", "confidence_high"), figures.confidence, strict=True)
    for name in _BY_K:
        curve: dict[int, float] = getattr(figures, name)
        yield from ((f"{name}/{k}", value) for k, value in curve.items() if k & (k - 1) == 0 or k == max(curve))
    for name in _GROUPED:
        group: dict[str, float] = getattr(figures, name)
        yield from ((f"{name}/{member}", value) for member, value in group.items())


def _numbers(named: Any) -> dict[str, float]:
    """Return the values that are numbers. A metric without a value yet is left out."""
    return {name: float(value) for name, value in named if value is not None and math.isfinite(value)}
