"""Measure the figures of a large collection on SQLite: from counted blocks, and counted from the rows.

`python -m scripts.measure_sqlite_figures [--rollouts 1000000]` creates finished rollouts, eight for each task, with one
INSERT … SELECT, counts their blocks as a worker does, and prints the seconds of each as one JSON object.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.measuring import machine_load, parse_sizes, say, use_database

REPEATS = 8
BUDGET_SECONDS = 0.3
_ROLLOUTS = """
    INSERT INTO rollouts_rollout (collection_id, task_id, repeat, status, attempt, reward, components, stop_reason,
        turns, tool_calls, input_tokens, output_tokens, cost, duration, model_time, tool_time, verify_time, tools,
        answer, started_at, finished_at{names})
    SELECT %(collection)s, id, repeat, 'completed', 1, worth / 20.0,
        json_object('correct', worth / 20, 'format', other), 'answered',
        2 + other, 1 + other, 400 + luck, luck, luck * 1e-6, luck * 0.01, 1.5, 0.3, 0.1,
        json_object('search', json_array(1 + other, 0, 0.2)), luck %% 7, %(now)s, %(now)s{defaults}
    FROM (
        SELECT t.id, n.value AS repeat, abs(random()) %% 21 AS worth, abs(random()) %% 4 AS other,
            abs(random()) %% 4000 AS luck
        FROM tasks_task t, json_each(%(repeats)s) n WHERE t.version_id = %(version)s ORDER BY t.id, n.value
    )
"""


def main() -> None:
    options = parse_sizes(__doc__, rollouts=1_000_000).parse_args()
    with tempfile.TemporaryDirectory(prefix="gymweb-figures-") as var:
        use_database(Path(var))
        sys.exit(not _measure(options.rollouts))


def _measure(rollouts: int) -> bool:
    from apps.rollouts.metrics import figure_blocks
    from apps.rollouts.metrics.collection_figures import measure_collection
    from apps.rollouts.models import FigureBlock, FigureMark

    seconds = {}
    began = time.perf_counter()
    collection = _fill(rollouts)
    seconds["fill"] = time.perf_counter() - began
    seconds["from_rows"], scanned = _best(lambda: measure_collection(collection), 1)
    FigureMark.objects.create(collection=collection, span=0, marked_at=collection.created_at)
    figure_blocks.SETTLED_SECONDS = 0.0
    began = time.perf_counter()
    while figure_blocks.count_marked_blocks():
        pass
    seconds["count_blocks"] = time.perf_counter() - began
    seconds["from_blocks"], figures = _best(lambda: measure_collection(collection), 3)
    assert (figures.rollouts, figures.groups, figures.median) == (scanned.rollouts, scanned.groups, scanned.median)
    within = seconds["from_blocks"] <= BUDGET_SECONDS
    rounded = {f"{name}_s": round(took, 2) for name, took in seconds.items()}
    blocks = FigureBlock.objects.count()
    say("sqlite_figures", rollouts=figures.rollouts, blocks=blocks, **rounded, within=within, load=machine_load())
    return within


def _best(read: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Return the fewest seconds and the figures."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        found = read()
        took.append(time.perf_counter() - began)
    return min(took), found


def _fill(rollouts: int) -> Any:
    from django.db import connection
    from django.utils import timezone

    from apps.environments.models import Environment
    from apps.rollouts.models import Collection, Rollout
    from scripts.fill_rollouts import make_people, with_defaults
    from scripts.reference_work import make_dataset

    tasks = rollouts // REPEATS
    dataset = make_dataset(Environment.objects.get(slug="calculator"), tasks=tasks)
    _, models, agents = make_people()
    now = timezone.now()
    collection = Collection.objects.create(
        name="Large",
        dataset=dataset,
        version=dataset.versions.get(),
        environment=dataset.environment,
        agent=agents[0],
        policy_model=models[0],
        repeats=REPEATS,
        state="completed",
        finished_at=now,
        total=rollouts,
    )
    given = {
        "collection": collection.pk,
        "version": collection.version_id,
        "repeats": str(list(range(REPEATS))),
        "now": connection.ops.adapt_datetimefield_value(now),
    }
    with connection.cursor() as cursor:
        cursor.execute(*with_defaults(_ROLLOUTS, Rollout, given))
        cursor.execute("ANALYZE")
    return collection


if __name__ == "__main__":
    main()
