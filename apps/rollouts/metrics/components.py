"""Figures of each reward component, by label."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson
from django.db import connection

from apps.rollouts.metrics.deviations import Deviations, deviations_sql
from apps.rollouts.metrics.distributions import Distribution, Numbers, distribute
from apps.rollouts.metrics.labels import Labels, read_by_label
from apps.rollouts.metrics.task_ranges import IN_RANGE, TaskRange

# Verifiers usually produce few distinct sets of components, so the database groups by set. If components vary, for
# example because they are times, this returns a row per rollout.
_COMPONENT_SETS = f"""
    WITH {{known}}
    SELECT {{label}}, components, SUM(size) FROM (
        SELECT {{raw}} AS raw, r.components, COUNT(*) AS size FROM rollouts_rollout r {{join}}
        WHERE {IN_RANGE} AND r.status = 'completed' GROUP BY {{by}}r.components
    ) stored {{parts}} JOIN known ON known.label = {{label}} GROUP BY 1, 2
"""  # noqa: S608
_CLUSTERED = f"""
    WITH {{known}}
    SELECT {{label}}, {{totals}} FROM (
        SELECT r.*, {{raw}} AS raw FROM (
            SELECT r.task_id{{version}}, {{sums}} FROM rollouts_rollout r
            WHERE {IN_RANGE} AND r.status = 'completed' GROUP BY r.task_id{{version}}
        ) r {{join}}
    ) stored {{parts}} JOIN known ON known.label = {{label}} GROUP BY 1
"""  # noqa: S608
_COMPONENTS_PER_QUERY = 20
_MEANS_PER_QUERY = 400


class Component(msgspec.Struct, array_like=True):
    """One reward component: its distribution, the number of tasks that have it, and their deviations from the mean."""

    values: Distribution
    tasks: int = 0
    deviations: Deviations = Deviations()


@dataclass(frozen=True, kw_only=True)
class ComponentFigures:
    """A reward component over all completed rollouts that have it.

    `confidence` is the 95 % interval, as for rewards.
    """

    name: str
    count: int
    mean: float
    std: float | None
    median: float
    confidence: tuple[float, float] | None


def read_components(tasks: TaskRange, labels: Labels) -> dict[str, dict[str, Component]]:
    """Return the components by label and name."""
    counts: dict[str, dict[str, Counter[float]]] = {label: defaultdict(Counter) for label in labels.names}
    for label, found, count in read_by_label(_COMPONENT_SETS, labels, [*tasks]):
        for name, value in (orjson.loads(found) if isinstance(found, str) else found).items():
            counts[label][name][float(value)] += int(count)
    components = {
        label: {
            name: Component(distribute((value, times, 0.0) for value, times in counted.items()))
            for name, counted in by_name.items()
        }
        for label, by_name in counts.items()
    }
    _add_tasks(tasks, labels, components)
    return components


def combine_components(parts: Sequence[Mapping[str, Component]]) -> list[ComponentFigures]:
    """Return the figures of each component, by name. Parts must have disjoint tasks."""
    names = sorted({name for part in parts for name in part})
    return [_figures(name, [part[name] for part in parts if name in part]) for name in names]


def _figures(name: str, parts: Iterable[Component]) -> ComponentFigures:
    parts = list(parts)
    values = Numbers(part.values for part in parts)
    mean, tasks = values.mean, sum(part.tasks for part in parts)
    squares = Deviations.combine(part.deviations for part in parts).about(mean).squares
    return ComponentFigures(
        name=name,
        count=values.size,
        mean=mean,
        std=values.std,
        median=values.median,
        confidence=values.interval(squares, tasks),
    )


def _add_tasks(tasks: TaskRange, labels: Labels, components: Mapping[str, Mapping[str, Component]]) -> None:
    """Set the number of tasks of each component, and their deviations from its mean."""
    names = sorted({name for by_name in components.values() for name in by_name})
    together = max(1, min(_COMPONENTS_PER_QUERY, _MEANS_PER_QUERY // max(1, len(components))))
    for start in range(0, len(names), together):
        chunk = names[start : start + together]
        values = [_member(name) for name in chunk]
        sums = ", ".join(
            f"SUM({value}) AS total{place}, COUNT({there}) AS size{place}"
            for place, (value, there, _) in enumerate(values)
        )
        totals = ", ".join(
            f"COUNT(total{place}), {deviations_sql(f'total{place}', f'size{place}', f'n{place}')}"
            for place in range(len(chunk))
        )
        given: list[Any] = [key for *_, key in values for _ in range(2)]
        known = {
            label: [by_name[name].values.mean if name in by_name else 0.0 for name in chunk]
            for label, by_name in components.items()
            if by_name
        }
        for label, *numbers in read_by_label(_CLUSTERED, labels, [*given, *tasks], known, totals=totals, sums=sums):
            for place, name in enumerate(chunk):
                count, *deviations = numbers[4 * place : 4 * place + 4]
                if component := components[label].get(name):
                    component.tasks = count
                    component.deviations = Deviations.read(component.values.mean, deviations)


def _member(name: str) -> tuple[str, str, str]:
    """Return SQL for the value of a component, SQL for its existence, and the parameter of both."""
    if connection.vendor == "postgresql":
        return "(r.components->>%s)::float8", "CASE WHEN jsonb_exists(r.components, %s) THEN 1 END", name
    quoted = orjson.dumps(name).decode()
    if name.isascii() and quoted == f'"{name}"':
        value = "json_extract(r.components, %s)"
        return value, value, f"$.{quoted}"
    # Some SQLite versions do not support quotes, backslashes or line ends in JSON paths.
    value = "(SELECT part.value FROM json_each(r.components) AS part WHERE part.key = %s)"
    return value, value, name
