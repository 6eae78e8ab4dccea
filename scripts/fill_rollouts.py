"""Fill a PostgreSQL database with a million rollouts as in a team's installation: twelve collections and more.

The first collection has a million rollouts, eight per task. Another has the same tasks, and ten smaller ones have a
fiftieth each, with other datasets, models and states. The engine runs a few real attempts, whose traces are copied.
Rollouts are created in the database by INSERT … SELECT, which takes less than two minutes for a million.
"""

import re
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import uvloop
from django.db import connection
from django.utils import timezone

from apps.accounts.models import Role, User
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.gym.traces.items import dump_json
from apps.policies.models import PolicyModel, Provider
from apps.rollouts.metrics.figure_blocks import count_marked_blocks
from apps.rollouts.models import Collection, FigureMark, Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from apps.tasks.models import Dataset, DatasetVersion, Task
from apps.tasks.row_matching import hash_text, key_of
from scripts.fill_statements import COMMENTS, COUNTERS, ROLLOUTS, TEMPLATE_EVENTS, TRACES, WORDS
from scripts.measuring import Filled

REPEATS = 8
SMALL = 10
"""Number of collections beside the two large ones."""
TEMPLATES = 40
"""Number of attempts that the engine runs, whose traces are copied."""
COMMENTED = 2_000
"""One of this many rollouts has a comment."""
TAGS = ("algebra", "geometry", "search", "code", "reading")
SPLITS = ("train", "train", "train", "validation")
_WORDS_INDEX = "rollouts_rolloutwords_document"
_ENDED = {"completed": "completed", "cancelled": "cancelled", "running": "queued", "paused": "queued"}
"""Status of unfinished rollouts by the state of their collection."""


def fill_rollouts(*, rollouts: int, traced: float) -> Filled:
    """Fill the database of Django's settings, which must be migrated and empty.

    `traced` is the share of rollouts with traces.
    """
    began = time.perf_counter()
    user, models, agents = make_people()
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
        cursor.execute(COMMENTS, {"user": user.pk, "each": COMMENTED})
        cursor.execute("SET maintenance_work_mem = '512MB'")
        for index in indexes:
            cursor.execute(index)
        # Search index rows of the templates are copied too.
        cursor.execute("DELETE FROM rollouts_unindexedrollout")
        cursor.execute("SET session_replication_role = DEFAULT")
        cursor.execute("VACUUM ANALYZE")
    _count_blocks(pks)

    return Filled(Rollout.objects.count(), pks, pks[0], pks[1], round(time.perf_counter() - began, 1))


def _prepare(templates: Any) -> list[str]:
    """Make inserts fast: drop the indexes of lists, and the checks of foreign keys to tasks and collections.

    Return the statements that restore the indexes.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SELECT setseed(0.5)")
        cursor.execute(TEMPLATE_EVENTS, [templates.pk])
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


def _count_blocks(pks: Sequence[int]) -> None:
    """Count the blocks of the collections, as a worker does after changes."""
    long_ago = timezone.now() - timedelta(hours=1)
    FigureMark.objects.bulk_create(FigureMark(collection_id=pk, span=0, marked_at=long_ago) for pk in pks)
    while count_marked_blocks():
        pass


def make_people() -> tuple[Any, Sequence[Any], Sequence[Any]]:
    user = User.objects.create_user(username="filler", role=Role.ADMIN)
    models = [
        PolicyModel.objects.create(slug=f"policy-{size}", name=f"Policy {size}", provider=Provider.SCRIPTED)
        for size in ("2b", "8b", "32b")
    ]
    agents = [Agent.objects.create(slug=f"agent-{name}", name=f"Agent {name}") for name in ("terse", "thorough")]
    return user, models, agents


def _dataset(slug: str, *, tasks: int) -> Any:
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
    """Return a copy of the task with a row and the values that loading a file would set."""
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


def with_defaults(statement: str, model: Any, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the INSERT with the columns that it does not name and their defaults: the tables have no defaults."""
    named = set(re.findall(r"\w+", statement.partition("INSERT INTO")[2].partition("SELECT")[0]))
    rest = [field for field in model._meta.concrete_fields if not field.null and field.column not in {*named, "id"}]
    names = "".join(f", {field.column}" for field in rest)
    places = "".join(f", %({field.column})s" for field in rest)
    values = {field.column: field.get_db_prep_save(field.get_default(), connection) for field in rest}
    return statement.format(names=names, defaults=places), {**given, **values}


def _attempt(dataset: Any, model: Any, agent: Any, user: Any) -> Any:
    """Return a collection that the engine runs."""
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
        """Return the id of a filled collection. Unfinished ones are three quarters done."""

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
            cursor.execute(*with_defaults(ROLLOUTS, Rollout, given))
            for statement in (COUNTERS, WORDS, *([TRACES] if self._share else [])):
                cursor.execute(statement, given)
        return collection.pk


def find_filled() -> Filled | None:
    """Return what an earlier run left in the named database, if anything."""
    pks = list(Collection.objects.order_by("pk").values_list("pk", flat=True)[1:])
    return Filled(Rollout.objects.count(), pks, pks[0], pks[1], 0.0) if pks else None
