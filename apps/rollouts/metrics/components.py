"""Figures of each reward component, by label."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from django.db import connection

from apps.gym.metrics.pass_at_k import confidence_interval, sample_std, standard_error_from
from apps.rollouts.metrics.labels import Labels, read_by_label
from apps.rollouts.models import Collection

# Verifiers usually produce few different sets of components, so the database counts sets instead of single values.
# Where components vary, as times do, this returns a row per rollout.
_COMPONENT_SETS = """
    WITH {known}
    SELECT {label}, components, SUM(size) FROM (
        SELECT {raw} AS raw, r.components, COUNT(*) AS size FROM rollouts_rollout r {join}
        WHERE r.collection_id = %s AND r.status = 'completed' GROUP BY {by}r.components
    ) stored {parts} JOIN known ON known.label = {label} GROUP BY 1, 2
"""
_CLUSTERED = """
    WITH {known}
    SELECT {label}, {totals} FROM (
        SELECT r.*, {raw} AS raw FROM (
            SELECT r.task_id{version}, {sums} FROM rollouts_rollout r
            WHERE r.collection_id = %s AND r.status = 'completed' GROUP BY r.task_id{version}
        ) r {join}
    ) stored {parts} JOIN known ON known.label = {label} GROUP BY 1
"""
_COMPONENTS_A_QUERY = 20
_MEANS_A_QUERY = 400

Values = Mapping[str, Counter[float]]
"""How often each value occurs, by component name."""


@dataclass(frozen=True, kw_only=True)
class ComponentFigures:
    """A reward component over all completed rollouts that have it. `confidence` is computed as for the reward."""

    name: str
    count: int
    mean: float
    std: float | None
    median: float
    confidence: tuple[float, float] | None


def read_components(collection: Collection, labels: Labels) -> dict[str, list[ComponentFigures]]:
    """Return the figures by label, each list sorted by component name."""
    values: dict[str, dict[str, Counter[float]]] = {label: defaultdict(Counter) for label in labels.names}
    for label, found, count in read_by_label(_COMPONENT_SETS, labels, [collection.pk]):
        for name, value in (orjson.loads(found) if isinstance(found, str) else found).items():
            values[label][name][float(value)] += int(count)
    means = {
        label: {
            name: math.fsum(value * times for value, times in counted.items()) / counted.total()
            for name, counted in components.items()
        }
        for label, components in values.items()
    }
    clustered = _read_clustered(collection, labels, means)
    return {
        label: [
            _component(name, components[name], means[label][name], *clustered[label, name])
            for name in sorted(components)
        ]
        for label, components in values.items()
    }


def _component(name: str, values: Counter[float], mean: float, groups: int, squares: float) -> ComponentFigures:
    count = values.total()
    error = standard_error_from(squares, count, groups)
    return ComponentFigures(
        name=name,
        count=count,
        mean=mean,
        std=sample_std(count, math.fsum((value - mean) ** 2 * times for value, times in values.items())),
        median=_median(values),
        confidence=None if error is None else confidence_interval(mean, error),
    )


def _median(values: Counter[float]) -> float:
    """Return the median of counted values."""
    low, high = (values.total() - 1) // 2, values.total() // 2
    passed, found = 0, []
    for value in sorted(values):
        found += [value] * ((passed <= low < passed + values[value]) + (passed <= high < passed + values[value]))
        passed += values[value]
    return statistics.mean(found)


def _read_clustered(
    collection: Collection, labels: Labels, means: Mapping[str, Mapping[str, float]]
) -> dict[tuple[str, str], tuple[int, float]]:
    """Return, by label and component, the number of tasks and the sum of their squared deviations from the mean."""
    names = sorted({name for known in means.values() for name in known})
    found: dict[tuple[str, str], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    together = max(1, min(_COMPONENTS_A_QUERY, _MEANS_A_QUERY // max(1, len(means))))
    for start in range(0, len(names), together):
        chunk = names[start : start + together]
        values = [_member(name) for name in chunk]
        sums = ", ".join(
            f"SUM({value}) AS total{place}, COUNT({there}) AS size{place}"
            for place, (value, there, _) in enumerate(values)
        )
        off = [f"(total{place} - size{place} * n{place})" for place in range(len(chunk))]
        totals = ", ".join(f"COUNT(total{place}), SUM({each} * {each})" for place, each in enumerate(off))
        given: list[Any] = [key for *_, key in values for _ in range(2)]
        known = {label: [of.get(name, 0.0) for name in chunk] for label, of in means.items() if of}
        for label, *numbers in read_by_label(
            _CLUSTERED, labels, [*given, collection.pk], known, totals=totals, sums=sums
        ):
            for place, name in enumerate(chunk):
                found[label, name] = numbers[2 * place], numbers[2 * place + 1] or 0.0
    return found


def _member(name: str) -> tuple[str, str, str]:
    """Return the SQL for a component's value, the SQL that tests whether it exists, and the parameter of both."""
    if connection.vendor == "postgresql":
        return "(r.components->>%s)::float8", "CASE WHEN jsonb_exists(r.components, %s) THEN 1 END", name
    quoted = orjson.dumps(name).decode()
    if name.isascii() and quoted == f'"{name}"':
        value = "json_extract(r.components, %s)"
        return value, value, f"$.{quoted}"
    # Not all SQLite versions support quotes, backslashes or line ends in JSON paths.
    value = "(SELECT part.value FROM json_each(r.components) AS part WHERE part.key = %s)"
    return value, value, name
