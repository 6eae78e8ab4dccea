"""Count the rollouts of a range of tasks, with everything that the figures of a whole collection need."""

import msgspec
from django.db import connection
from django.db.models import Count, FloatField, Sum
from django.db.models.functions import Cast

from apps.gym.metrics.first_k import OrderedAttempts
from apps.rollouts.metrics.distributions import Distribution, distribute
from apps.rollouts.metrics.label_figures import Part, read_parts
from apps.rollouts.metrics.labels import single_label
from apps.rollouts.metrics.ordered_attempts import read_ordered
from apps.rollouts.metrics.task_ranges import IN_RANGE, TaskRange

_TOOLS = {
    "sqlite": f"""
        SELECT part.key, COUNT(*), SUM(part.value->>0), SUM(part.value->>1), SUM(part.value->>2)
        FROM rollouts_rollout r, json_each(r.tools) AS part
        WHERE {IN_RANGE} AND r.status = 'completed' GROUP BY part.key
    """,  # noqa: S608
    "postgresql": f"""
        SELECT part.key, COUNT(*), SUM((part.value->>0)::bigint)::bigint, SUM((part.value->>1)::bigint)::bigint,
            SUM((part.value->>2)::float8)
        FROM rollouts_rollout r, jsonb_each(r.tools) AS part
        WHERE {IN_RANGE} AND r.status = 'completed' GROUP BY part.key
    """,  # noqa: S608
}


class CollectionPart(msgspec.Struct, array_like=True):
    """Counts of the rollouts of some tasks, for all labels.

    `attempts` has the rewarded attempts in the order they were planned. `tools` has (rollouts, calls, errors, seconds)
    by tool. `lengths` has output tokens of rewarded rollouts, with the sums of their rewards.
    """

    part: Part
    attempts: OrderedAttempts
    tools: dict[str, tuple[int, int, int, float]]
    lengths: Distribution


def read_whole_part(tasks: TaskRange) -> CollectionPart:
    labels = single_label()
    (part,) = read_parts(tasks, labels).values()
    return CollectionPart(part, read_ordered(tasks), _read_tools(tasks), _read_lengths(tasks))


def _read_lengths(tasks: TaskRange) -> Distribution:
    rows = tasks.rollouts().rewarded().order_by().values_list("output_tokens")
    return distribute(rows.annotate(count=Count("id"), total=Sum(Cast("reward", FloatField()))))


def _read_tools(tasks: TaskRange) -> dict[str, tuple[int, int, int, float]]:
    with connection.cursor() as cursor:
        cursor.execute(_TOOLS[connection.vendor], [*tasks])
        return {name: tuple(sums) for name, *sums in cursor.fetchall()}
