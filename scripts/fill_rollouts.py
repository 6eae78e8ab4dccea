"""Fill a PostgreSQL database with a million rollouts as a team leaves them behind: twelve collections and more.

`python scripts/fill_rollouts.py --database postgres://… [--rollouts 1000000] [--traced 0.1]` fills an empty database.
The first collection has all of the million, eight a task; one beside it has the same tasks, and ten have the fiftieth
part each, of other datasets, models and states. Their traces are those of real attempts that the engine makes here.
Rollouts are made where they are stored, by INSERT … SELECT: a million take less than two minutes.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

REPEATS = 8
SMALL = 10
"""Collections beside the two large ones."""
TEMPLATES = 40
"""Attempts that the engine makes, whose traces the others have."""
COMMENTED = 2_000
"""Every so many rollouts has a comment."""

TAGS = ("algebra", "geometry", "search", "code", "reading")
SPLITS = ("train", "train", "train", "validation")
# `hard` is how hard the task is, the others are the luck of the attempt: groups are never, sometimes and always solved.
_ROLLOUTS = """
    INSERT INTO rollouts_rollout (collection_id, task_id, repeat, seed, status, attempt, failures, lost, model_version,
        reward, components, stop_reason, error_kind, error_message, turns, tool_calls, tool_errors, input_tokens,
        output_tokens, judge_calls, judge_tokens, cost, duration, model_time, tool_time, verify_time, tools, answer,
        redactions, flagged, started_at, finished_at{names})
    SELECT %(collection)s, task_id, repeat, place, status,
        CASE WHEN is_over THEN 1 + (luck > 0.97)::int ELSE 0 END,
        CASE WHEN is_over THEN (luck > 0.97)::int ELSE 0 END, 0,
        CASE WHEN is_over THEN 'step-' || 100 * (1 + (place * 3) / GREATEST(1, %(rollouts)s)) ELSE '' END,
        CASE WHEN status <> 'completed' THEN NULL WHEN solved THEN 1.0 ELSE partial END,
        CASE WHEN status <> 'completed' THEN jsonb '{{}}' ELSE jsonb_build_object('correct', solved::int::float8,
            'format', floor(other * 4) / 4.0, 'brevity', round(luck::numeric, 2)::float8) END,
        CASE WHEN status <> 'completed' THEN '' WHEN other < 0.86 THEN 'answered' WHEN other < 0.94 THEN 'max_steps'
            WHEN other < 0.98 THEN 'max_output_tokens' ELSE 'time_limit' END,
        CASE WHEN status <> 'failed' THEN '' WHEN luck < 0.4 THEN 'policy_error' WHEN luck < 0.6 THEN 'timed_out'
            WHEN luck < 0.9 THEN 'environment_error' ELSE 'worker_lost' END,
        CASE WHEN status = 'failed' THEN 'The endpoint answered 503 four times: the server is overloaded.' ELSE '' END,
        CASE WHEN is_over THEN 2 + floor(other * 9) ELSE 0 END, CASE WHEN is_over THEN 1 + floor(other * 8) ELSE 0 END,
        CASE WHEN is_over THEN (luck > 0.9)::int ELSE 0 END,
        CASE WHEN is_over THEN 400 + floor(luck * 6000) ELSE 0 END,
        CASE WHEN is_over THEN 60 + floor(other * other * 4000) ELSE 0 END, 0, 0,
        CASE WHEN is_over THEN round((0.001 + luck * 0.02)::numeric, 5)::float8 ELSE 0 END,
        CASE WHEN is_over THEN 2 + luck * 40 ELSE 0 END, CASE WHEN is_over THEN 1.5 + luck * 36 ELSE 0 END,
        CASE WHEN is_over THEN 0.3 + other * 3 ELSE 0 END, CASE WHEN is_over THEN 0.05 + luck * 0.2 ELSE 0 END,
        CASE WHEN status <> 'completed' THEN jsonb '{{}}' ELSE jsonb_build_object(
            'search', jsonb_build_array(1 + floor(other * 5), (luck > 0.9)::int, round((other * 2)::numeric, 3)),
            'calculator', jsonb_build_array(1 + floor(luck * 3), 0, 0.01)) END,
        CASE WHEN status <> 'completed' THEN '' WHEN solved THEN (place %% 997)::text
            ELSE floor(luck * 6)::text END,
        CASE WHEN is_flagged THEN jsonb_build_object('bearer', 1) ELSE jsonb '{{}}' END, is_flagged,
        CASE WHEN is_over THEN %(began)s + place * interval '40 milliseconds' END,
        CASE WHEN is_over THEN %(began)s + place * interval '40 milliseconds' + interval '20 seconds' END{defaults}
    FROM (
        SELECT *, status IN ('completed', 'failed') AS is_over, status = 'completed' AND luck * 0.7 + 0.3 * other > hard
            AS solved, floor(other * 20) / 25.0 AS partial, status = 'completed' AND place %% 1500 = 7 AS is_flagged
        FROM (
            SELECT task_id, repeat, place, luck, other, hard, CASE
                WHEN place >= %(ended)s THEN %(rest)s WHEN chance < %(failing)s THEN 'failed' ELSE 'completed'
                END AS status
            FROM (
                SELECT t.id AS task_id, r AS repeat, t."index"::bigint * %(repeats)s + r AS place,
                    random() AS luck, random() AS other, random() AS chance,
                    (hashint4(t."index") & 1023) / 1023.0 * 1.2 - 0.1 AS hard
                FROM tasks_task t, generate_series(0, %(repeats)s - 1) r
                WHERE t.version_id = %(version)s ORDER BY t.id, r
            ) attempts
        ) outcomes
    ) rows
"""
_COUNTERS = """
    UPDATE rollouts_collection c SET total = s.total, completed = s.completed, failed = s.failed,
        cancelled = s.cancelled, rewarded = s.rewarded, reward_sum = s.reward_sum, input_tokens = s.input_tokens,
        output_tokens = s.output_tokens, cost = s.cost, retried = s.retried
    FROM (
        SELECT COUNT(*) AS total, COUNT(*) FILTER (WHERE status = 'completed') AS completed,
            COUNT(*) FILTER (WHERE status = 'failed') AS failed,
            COUNT(*) FILTER (WHERE status = 'cancelled') AS cancelled, COUNT(reward) AS rewarded,
            COALESCE(SUM(reward), 0) AS reward_sum, SUM(input_tokens) AS input_tokens,
            SUM(output_tokens) AS output_tokens, SUM(cost) AS cost, SUM(failures) AS retried
        FROM rollouts_rollout WHERE collection_id = %(collection)s
    ) s WHERE c.id = %(collection)s
"""
_TEMPLATES = """
    CREATE TEMPORARY TABLE filled_templates AS
    SELECT t.place, e.seq, e.kind, e.payload, e.tokens
    FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 AS place FROM rollouts_rollout WHERE collection_id = %s) t
    JOIN rollouts_traceevent e ON e.rollout_id = t.id
"""
_TRACES = """
    INSERT INTO rollouts_traceevent (rollout_id, attempt, seq, kind, payload, tokens)
    SELECT r.id, r.attempt, e.seq, e.kind, e.payload, e.tokens
    FROM rollouts_rollout r JOIN filled_templates e ON e.place = r.id %% %(templates)s
    WHERE r.collection_id = %(collection)s AND r.attempt > 0
        AND (hashint8(r.id) & 1023) * 1000 < %(share)s * 1024
"""
_COMMENTS = """
    INSERT INTO reviews_comment (rollout_id, author_id, text, quote, created_at)
    SELECT id, %(user)s, 'It read the question too fast: the unit is wrong.', '', finished_at
    FROM rollouts_rollout WHERE finished_at IS NOT NULL AND id %% %(each)s = 0
"""
# What the index of words has of each that ended: what its task asks, its answer, and twelve of 20,000 words, of which
# some are in every tenth rollout and some in a few. Short, since a million whole traces would be another measurement.
_WORDS = """
    INSERT INTO rollouts_rolloutwords (rollout_id, part, attempt, is_cut, document)
    SELECT r.id, 0, r.attempt, false, ('you:1 are:2 a:3 careful:4 assistant:5 task:7 ' || t."index"
        || ':8 what:9 is:10 ' || t."index" || ':11 7:12 calculator:14 the:16 answer:17 is:18 rollout' || r.id || ':19 '
        || 'v' || floor(20000 * random() ^ 4) || ':21 v' || floor(20000 * random() ^ 4) || ':22 '
        || 'v' || floor(20000 * random() ^ 4) || ':23 v' || floor(20000 * random() ^ 4) || ':24 '
        || 'v' || floor(20000 * random() ^ 4) || ':25 v' || floor(20000 * random() ^ 4) || ':26 '
        || 'v' || floor(20000 * random()) || ':27 v' || floor(20000 * random()) || ':28 '
        || 'v' || floor(20000 * random()) || ':29 v' || floor(20000 * random()) || ':30 '
        || CASE WHEN r.id %% 50000 = 7 THEN 'cannot:32 find:33 the:34 file:35 '
            WHEN r.id %% 40 = 0 THEN 'find:32 what:33 you:34 cannot:35 ' ELSE '' END
        || CASE WHEN r.id %% 1000 = 3 THEN '找:37 不:38 到:39 文:40 件:41' ELSE '' END)::tsvector
    FROM rollouts_rollout r JOIN tasks_task t ON t.id = r.task_id
    WHERE r.collection_id = %(collection)s AND r.attempt > 0 AND r.finished_at IS NOT NULL
"""
_WORDS_INDEX = "rollouts_rolloutwords_document"
_ENDED = {"completed": "completed", "cancelled": "cancelled", "running": "queued", "paused": "queued"}
"""What the rollouts are that have not ended, by the state of their collection."""


class Filled(NamedTuple):
    """What is there, by primary key."""

    rollouts: int
    collections: list[int]
    large: int
    beside: int
    seconds: float


def fill_rollouts(*, rollouts: int, traced: float) -> Filled:
    """Fill the database that Django is set up on, which has to be migrated and empty. `traced` is the share of rollouts
    with traces."""
    from django.db import connection

    began = time.perf_counter()
    user, models, agents = _people()
    large = _dataset("arithmetic", tasks=max(TEMPLATES, rollouts // REPEATS))
    small = [_dataset(name, tasks=max(8, rollouts // 400)) for name in ("search-qa", "code-repair")]
    templates = _attempt(large, models[0], agents[0], user)
    indexes = _prepare(templates)
    filler = _Filler(templates, user, traced)
    states = ["completed", "completed", "running", "completed", "cancelled", "completed", "paused", "completed"]
    pks = [
        filler.add("Everything, eight times", large, models[0], agents[0], repeats=REPEATS),
        filler.add("The step before", large, models[1], agents[0], repeats=1),
    ]
    pks += [
        filler.add(
            f"Nightly {number + 1}",
            small[number % len(small)],
            models[number % len(models)],
            agents[number % len(agents)],
            repeats=REPEATS,
            state=states[number % len(states)],
            failing=0.9 if number == 5 else 0.03,
        )
        for number in range(SMALL)
    ]
    with connection.cursor() as cursor:
        cursor.execute(_COMMENTS, {"user": user.pk, "each": COMMENTED})
        cursor.execute("SET maintenance_work_mem = '512MB'")
        for index in indexes:
            cursor.execute(index)
        # What the engine made for the templates is indexed by those that are filled.
        cursor.execute("DELETE FROM rollouts_unindexedrollout")
        cursor.execute("SET session_replication_role = DEFAULT")
        cursor.execute("VACUUM ANALYZE")
    from apps.rollouts.models import Rollout

    return Filled(Rollout.objects.count(), pks, pks[0], pks[1], round(time.perf_counter() - began, 1))


def _prepare(templates: Any) -> list[str]:
    """Make inserts cheap: without the indexes of lists, whose statements it gives, and without looking up each row's
    task and collection, which come from a join."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SELECT setseed(0.5)")
        cursor.execute(_TEMPLATES, [templates.pk])
        cursor.execute("ANALYZE filled_templates")
        cursor.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'rollouts_rollout' AND indexname NOT IN "
            "(SELECT conname FROM pg_constraint WHERE conrelid = 'rollouts_rollout'::regclass) OR indexname = %s",
            [_WORDS_INDEX],
        )
        found = cursor.fetchall()
        for name, _ in found:
            cursor.execute(f'DROP INDEX "{name}"')
    return [statement for _, statement in found]


def _people() -> tuple[Any, Sequence[Any], Sequence[Any]]:
    from apps.accounts.models import Role, User
    from apps.agents.models import Agent
    from apps.policies.models import PolicyModel, Provider

    user = User.objects.create_user(username="filler", role=Role.ADMIN)
    models = [
        PolicyModel.objects.create(slug=f"policy-{size}", name=f"Policy {size}", provider=Provider.SCRIPTED)
        for size in ("2b", "8b", "32b")
    ]
    agents = [Agent.objects.create(slug=f"agent-{name}", name=f"Agent {name}") for name in ("terse", "thorough")]
    return user, models, agents


def _dataset(slug: str, *, tasks: int) -> Any:
    from django.db import connection

    from apps.environments.models import Environment
    from apps.tasks.models import Dataset, DatasetVersion, Task

    environment = Environment.objects.get(slug="calculator")
    dataset = Dataset.objects.create(slug=slug, name=slug.replace("-", " ").capitalize(), environment=environment)
    version = DatasetVersion.objects.create(dataset=dataset, number=1, state="ready", task_count=tasks)
    columns = [str(field.column) for field in Task._meta.concrete_fields if field.column != "id"]
    names = ", ".join(f'"{column}"' for column in columns)
    with connection.cursor() as cursor, cursor.copy(f"COPY tasks_task ({names}) FROM STDIN") as copy:
        for index in range(tasks):
            task = _task(Task(dataset=dataset, version=version, index=index))
            copy.write_row([getattr(task, column) for column in columns])
    return dataset


def _task(task: Any) -> Any:
    """The same with a row, and what the loading of a file would find in it."""
    from apps.gym.traces.items import dump_json
    from apps.tasks.row_matching import hash_text, key_of

    task.external_id = f"task-{task.index}"
    task.prompt_excerpt = f"Task {task.index}: what is {task.index} * 7?"
    tool = {"type": "function", "name": "calculator", "parameters": {"type": "object", "properties": {}}}
    prompt = [
        {"role": "system", "content": "You are a careful assistant. " * 12},
        {"role": "user", "content": task.prompt_excerpt},
    ]
    params = {"input": prompt, "tools": [tool]}
    row = {"id": task.external_id, "responses_create_params": params, "expected_answer": str(task.index * 7)}
    task.row_json = dump_json(row)
    task.row_hash = hash_text(task.row_json.encode())
    task.key = key_of(task.external_id, task.row_hash)
    task.split = SPLITS[task.index % len(SPLITS)]
    task.tags = [TAGS[task.index % len(TAGS)], *(["hard"] if task.index % 3 == 0 else [])]
    task.is_retired = task.index % 500 == 499
    return task


def _with_defaults(statement: str, model: Any, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The INSERT with the columns that it does not name, and their defaults: the tables have none of their own."""
    from django.db import connection

    named = set(re.findall(r"\w+", statement.partition("INSERT INTO")[2].partition("SELECT")[0]))
    rest = [field for field in model._meta.concrete_fields if not field.null and field.column not in {*named, "id"}]
    names = "".join(f", {field.column}" for field in rest)
    places = "".join(f", %({field.column})s" for field in rest)
    values = {field.column: field.get_db_prep_save(field.get_default(), connection) for field in rest}
    return statement.format(names=names, defaults=places), {**given, **values}


def _attempt(dataset: Any, model: Any, agent: Any, user: Any) -> Any:
    """A collection that the engine runs."""
    import uvloop

    from apps.rollouts.plans.plan_spec import Plan
    from apps.rollouts.plans.planning import plan_collection
    from apps.rollouts.steering.local_worker import finish_collection

    plan = {"dataset": dataset, "agent": agent, "policy_model": model, "repeats": 1, "limit": TEMPLATES}
    collection = plan_collection(Plan(**plan, name="By the engine"), user=user)
    return uvloop.run(finish_collection(collection, progress=lambda _: None, seats=8))


class _Filler:
    def __init__(self, templates: Any, user: Any, traced: float) -> None:
        self._templates, self._user, self._share = templates, user, round(traced * 1000)

    def add(
        self,
        name: str,
        dataset: Any,
        model: Any,
        agent: Any,
        *,
        repeats: int,
        state: str = "completed",
        failing: float = 0.03,
    ) -> int:
        """The primary key of a collection that is filled. One that has not ended is three quarters done."""
        from datetime import timedelta

        from django.db import connection
        from django.utils import timezone

        from apps.rollouts.models import Collection, Rollout

        version = dataset.latest_version()
        rollouts = version.task_count * repeats
        began = timezone.now() - timedelta(days=3)
        collection = Collection.objects.create(
            name=name,
            dataset=dataset,
            version=version,
            environment=dataset.environment,
            agent=agent,
            policy_model=model,
            repeats=repeats,
            snapshot={**self._templates.snapshot, "seed": 7},
            state=state,
            pause_reason="asked" if state == "paused" else "",
            created_by=self._user,
            started_at=began,
            finished_at=began + timedelta(hours=12) if state in {"completed", "cancelled"} else None,
        )
        given = {
            "collection": collection.pk,
            "version": version.pk,
            "repeats": repeats,
            "rollouts": rollouts,
            "ended": rollouts if state == "completed" else rollouts * 3 // 4,
            "rest": _ENDED[state],
            "failing": failing,
            "began": began,
            "templates": TEMPLATES,
            "share": self._share,
        }
        with connection.cursor() as cursor:
            cursor.execute(*_with_defaults(_ROLLOUTS, Rollout, given))
            for statement in (_COUNTERS, _WORDS, *([_TRACES] if self._share else [])):
                cursor.execute(statement, given)
        return collection.pk


def find_filled() -> Filled | None:
    """What an earlier run left in the database that was named."""
    from apps.rollouts.models import Collection, Rollout

    pks = list(Collection.objects.order_by("pk").values_list("pk", flat=True)[1:])
    return Filled(Rollout.objects.count(), pks, pks[0], pks[1], 0.0) if pks else None


def use_database(url: str, var: Path) -> None:
    """Set Django up on this database and migrate it."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_VAR": str(var),
        "GYMWEB_DATABASE_URL": url,
        "GYMWEB_LOG_LEVEL": "WARNING",
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", required=True, help="postgres://…, empty")
    parser.add_argument("--rollouts", type=int, default=1_000_000, help="of the largest collection; the rest is less")
    parser.add_argument("--traced", type=float, default=0.1, help="the share of rollouts with traces")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gymweb-fill-") as var:
        use_database(options.database, Path(var))
        filled = fill_rollouts(rollouts=options.rollouts, traced=options.traced)
    print(json.dumps({"filled": filled.rollouts, **filled._asdict()}))


if __name__ == "__main__":
    main()
