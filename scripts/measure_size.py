"""Measure what a rollout takes on disk: the engine runs scripted attempts in built-in environments and stores them.

`python -m scripts.measure_size [--rollouts 20000] [--databases sqlite postgresql]` prints one JSON object for each
database: bytes per rollout of each table with its indexes, and of the payloads as text and as stored. All rollouts are
indexed for search. Tables are compacted first, so that free space does not count.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.measuring import in_own_process, parse_sizes, say, use_database
from scripts.servers import postgres

ENVIRONMENTS = ("calculator", "exact_match", "mcqa", "search", "workplace", "sokoban", "blackjack", "structured_output")
TASKS = 250
SEATS = 64
SAMPLE = 4_000
_TABLES = {
    "postgresql": """
        SELECT relname, pg_relation_size(oid) + COALESCE(pg_total_relation_size(NULLIF(reltoastrelid, 0)), 0),
            pg_indexes_size(oid)
        FROM pg_class WHERE relkind = 'r' AND relname LIKE 'rollouts_%'
    """,
    "sqlite": """
        SELECT m.tbl_name, SUM(CASE WHEN m.type = 'table' THEN d.pgsize ELSE 0 END),
            SUM(CASE WHEN m.type = 'index' THEN d.pgsize ELSE 0 END)
        FROM dbstat d JOIN sqlite_master m ON m.name = d.name
        WHERE m.tbl_name LIKE 'rollouts_%' GROUP BY m.tbl_name
    """,
}


def measure_disk(rollouts: int, url: str) -> None:
    """Fill the database of this process and print its sizes."""
    with tempfile.TemporaryDirectory(prefix="gymweb-size-") as var:
        use_database(Path(var), **({"GYMWEB_DATABASE_URL": url} if url else {}))
        _run_all(rollouts)
        _index()
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("VACUUM FULL" if connection.vendor == "postgresql" else "VACUUM")
            cursor.execute(_TABLES[connection.vendor])
            sizes = cursor.fetchall()
            cursor.execute("SELECT COUNT(*), SUM(LENGTH(payload)) FROM rollouts_traceevent")
            events, stored = cursor.fetchone()
            cursor.execute("SELECT COUNT(*) FROM rollouts_rollout")
            (number,) = cursor.fetchone()
        tables = {
            name.removeprefix("rollouts_"): [round(table / number), round(indexes / number)]
            for name, table, indexes in sorted(sizes, key=lambda row: -row[1] - row[2])
            if table + indexes > 8 * number
        }
        say(
            "disk",
            database=connection.vendor,
            rollouts=number,
            events_a_rollout=round(events / number, 1),
            payload_text=_text_size(number),
            payload_stored=round(stored / number),
            table_and_indexes=tables,
            bytes_a_rollout=sum(map(sum, tables.values())),
        )


def _run_all(rollouts: int) -> None:
    import uvloop

    from apps.agents.models import Agent
    from apps.policies.models import PolicyModel, Provider
    from apps.rollouts.plans.plan_spec import Plan
    from apps.rollouts.plans.planning import plan_collection
    from apps.rollouts.steering.local_worker import finish_collection

    model = PolicyModel.objects.create(slug="scripted-model", name="Scripted", provider=Provider.SCRIPTED)
    agent = Agent.objects.create(slug="solver", name="Solver", system_prompt="Solve the task. Use the tools you have.")
    repeats = max(1, rollouts // len(ENVIRONMENTS) // TASKS)
    for dataset in _datasets():
        plan: dict[str, Any] = {"dataset": dataset, "agent": agent, "policy_model": model, "repeats": repeats}
        uvloop.run(finish_collection(plan_collection(Plan(**plan)), progress=lambda _: None, seats=SEATS))


def _datasets() -> Iterator[Any]:
    from apps.environments.models import Adapter, Environment
    from apps.gym.environments.kits import KITS
    from apps.gym.environments.task_generation import generate_tasks
    from apps.gym.traces.items import dump_json
    from apps.tasks.models import Dataset, DatasetVersion, Task

    for name in ENVIRONMENTS:
        environment = Environment.objects.filter(builtin=name).first() or Environment.objects.create(
            slug=name.replace("_", "-"), name=name, adapter=Adapter.BUILTIN, builtin=name
        )
        dataset = Dataset.objects.create(slug=environment.slug, name=name, environment=environment)
        version = DatasetVersion.objects.create(dataset=dataset, number=1, state="ready", task_count=TASKS)
        rows = generate_tasks(KITS[name], count=TASKS, seed=7)
        Task.objects.bulk_create(
            Task(dataset=dataset, version=version, index=index, row_json=dump_json(row))
            for index, row in enumerate(rows)
        )
        yield dataset


def _index() -> None:
    from apps.rollouts.search.word_index import index_all

    for _ in index_all():
        pass


def _text_size(number: int) -> int:
    """Return the mean bytes of a rollout's payloads as text, over at most SAMPLE rollouts."""
    from apps.rollouts.models import Rollout, TraceEvent

    ids = list(Rollout.objects.order_by("pk").values_list("pk", flat=True))[:: max(1, number // SAMPLE)]
    texts = (TraceEvent.objects.filter(rollout=pk).values_list("payload", flat=True) for pk in ids)
    return round(sum(len(text.encode()) for found in texts for text in found) / len(ids))


def main() -> None:
    parser = parse_sizes(__doc__, rollouts=20_000)
    parser.add_argument("--databases", nargs="*", default=["sqlite", "postgresql"])
    options = parser.parse_args()
    if "sqlite" in options.databases:
        in_own_process(measure_disk, options.rollouts, "")
    if "postgresql" in options.databases:
        with postgres() as server:
            in_own_process(measure_disk, options.rollouts, server.url)


if __name__ == "__main__":
    main()
