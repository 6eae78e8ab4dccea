"""Measure the page of failures of a collection with many unsolved rollouts.

`python -m scripts.measure_failures [--rollouts 100000]` creates unsolved rollouts on SQLite and on PostgreSQL, eight
for each task, each with a verifier explanation and a tool error of one of 2,000 causes, and prints the seconds that
reading the first page takes, by source, as one JSON object for each database. The exit status is 1 above the budget.
"""

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.measuring import in_own_process, machine_load, parse_sizes, say, use_database
from scripts.servers import postgres

REPEATS = 8
CAUSES = 2_000
BUDGET_SECONDS = 2.0
SOURCES = ("verifier", "tool")


def main() -> None:
    rollouts = parse_sizes(__doc__, rollouts=100_000).parse_args().rollouts
    kept = True
    for name in ("sqlite", "postgres"):
        with tempfile.TemporaryDirectory(prefix="gymweb-failures-") as var, contextlib.ExitStack() as stack:
            settings = {}
            if name == "postgres":
                settings = {"GYMWEB_DATABASE_URL": stack.enter_context(postgres()).url}
            found = in_own_process(measure, var, settings, rollouts)
        kept = kept and max(found["seconds"].values()) <= BUDGET_SECONDS
        say(f"failures.{name}", **found, budget_seconds=BUDGET_SECONDS, load=machine_load())
    sys.exit(not kept)


def measure(var: str, settings: dict[str, str], rollouts: int) -> dict[str, Any]:
    """Fill the database in this process, and read the first page of each source."""
    use_database(Path(var), **settings)
    from apps.gym.traces.cause_texts import Source
    from apps.rollouts.failures.failure_groups import read_failures

    sources: tuple[Source, ...] = ("verifier", "tool")
    collection = _fill(rollouts)
    seconds = {}
    for source in sources:
        began = time.perf_counter()
        found = read_failures(collection, source)
        seconds[source] = round(time.perf_counter() - began, 2)
        assert (found.unsolved, found.by_source[source], len(found.groups)) == (rollouts, rollouts, 20)
    return {"rollouts": rollouts, "causes": CAUSES, "seconds": seconds}


def _fill(rollouts: int) -> Any:
    from django.db import connection
    from django.utils import timezone

    from apps.environments.models import Environment
    from apps.gym.traces.events import Verification, encode_event
    from apps.rollouts.models import Collection, FailureCause, Rollout, RolloutCause, TraceEvent
    from scripts.fill_rollouts import make_people
    from scripts.reference_work import make_dataset

    dataset = make_dataset(Environment.objects.get(slug="calculator"), tasks=rollouts // REPEATS)
    version = dataset.versions.get()
    for number in range(20):
        version.tasks.filter(index__gte=number * rollouts // REPEATS // 20).update(tags_text=f"\ntag{number}\n")
    _, models, agents = make_people()
    collection = Collection.objects.create(
        name="Large",
        dataset=dataset,
        version=version,
        environment=dataset.environment,
        agent=agents[0],
        policy_model=models[0],
        repeats=REPEATS,
        state="completed",
        finished_at=timezone.now(),
        total=rollouts,
    )
    made = Rollout.objects.bulk_create(
        (
            Rollout(
                collection=collection,
                task_id=task,
                repeat=repeat,
                status="completed",
                attempt=1,
                reward=0.0,
                stop_reason="answered",
                model_version=f"step-{repeat % 4}",
                tool_errors=1,
                finished_at=collection.finished_at,
            )
            for task in version.tasks.order_by("index").values_list("pk", flat=True)
            for repeat in range(REPEATS)
        ),
        batch_size=2_000,
    )
    payload = encode_event(Verification(reward=0.0, explanation="expected 4, got 5"))
    TraceEvent.objects.bulk_create(
        (TraceEvent(rollout=each, attempt=1, seq=0, kind="verification", payload=payload) for each in made),
        batch_size=5_000,
    )
    for source in SOURCES:
        causes = FailureCause.objects.bulk_create(
            [
                FailureCause(collection=collection, source=source, text=f"cause {chr(97 + n % 26)}{n}")
                for n in range(CAUSES)
            ]
        )
        RolloutCause.objects.bulk_create(
            # A few causes are frequent, most are rare.
            (RolloutCause(rollout=each, source=source, cause=causes[each.pk**2 % CAUSES]) for each in made),
            batch_size=5_000,
        )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return collection


if __name__ == "__main__":
    main()
