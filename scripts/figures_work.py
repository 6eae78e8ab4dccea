"""What it costs to read the figures of a large collection: rewards, components, tools, groups, two side by side."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connection
from django.utils import timezone

from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.models import PolicyModel, Provider
from apps.rollouts.metrics.breakdowns import break_down
from apps.rollouts.metrics.collection_comparison import contrast_collections
from apps.rollouts.metrics.collection_figures import measure_collection
from apps.rollouts.metrics.reward_sample import scatter_rewards
from apps.rollouts.metrics.task_profiles import profile_tasks
from apps.rollouts.models import Collection
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from scripts.fill_rollouts import fill_rollouts
from scripts.reference_work import make_dataset
from scripts.servers import cpu_seconds, run_milliseconds

REPEATS = 8

# On SQLite: everything that a rollout can have, from its id. Groups are never, sometimes and always solved.
_END = """
    UPDATE rollouts_rollout SET
        status = CASE WHEN id %% 50 = 0 THEN 'failed' ELSE 'completed' END,
        error_kind = CASE WHEN id %% 50 = 0 THEN 'timed_out' ELSE '' END,
        stop_reason = CASE WHEN id %% 50 = 0 THEN '' WHEN id %% 7 = 0 THEN 'max_steps' ELSE 'answered' END,
        reward = CASE WHEN id %% 50 = 0 THEN NULL WHEN (id * 7919 + task_id) %% 11 > task_id %% 13 THEN 1.0
            ELSE (id %% 4) / 8.0 END,
        components = json_object('correct', id %% 2, 'format', (id %% 4) / 4.0),
        tools = json_object('search', json_array(2, id %% 2, 0.2)), answer = CAST(id %% 5 AS text),
        attempt = 1, turns = 3, tool_calls = 2, input_tokens = 300 + id %% 1000, output_tokens = 50 + id %% 700,
        duration = 1 + id %% 9, model_time = 0.7 + id %% 9, tool_time = 0.2, verify_time = 0.1,
        started_at = %s, finished_at = %s
    WHERE collection_id = %s
"""

BUDGET_SECONDS = 5.0


def measure_figures(*, rollouts: int, servers: Sequence[int]) -> dict[str, Any]:
    """Seconds to read each kind of figures of a collection of so many rollouts, eight a task."""
    one, other = _find_pair(rollouts)
    reads: dict[str, Callable[[], object]] = {
        "measure": lambda: measure_collection(one),
        "by_split": lambda: break_down(one, "split"),
        "by_tag": lambda: break_down(one, "tag"),
        "by_version": lambda: break_down(one, "model_version"),
        "profile_page": lambda: profile_tasks(one, after=one.total // REPEATS // 2),
        "profile_never": lambda: profile_tasks(one, bucket="never"),
        "scatter": lambda: scatter_rewards(one),
        "contrast": lambda: contrast_collections(one, other),
    }
    seconds, cpu = {}, {}
    for name, read in reads.items():
        seconds[name], cpu[name] = _seconds(read, servers)
    load = os.getloadavg()[0]
    # Where the machine has more to do than it has cores, the clock tells of the neighbours.
    is_busy = bool(servers) and load > (os.cpu_count() or 1)
    return {
        "rollouts": one.total,
        "tasks": one.total // REPEATS,
        **{f"{name}_s": took for name, took in seconds.items()},
        **({"cpu_s": cpu} if servers else {}),
        "judged_by": "cpu" if is_busy else "clock",
        "budget_s": BUDGET_SECONDS,
        "within": max((cpu if is_busy else seconds).values()) < BUDGET_SECONDS,
        "load": round(load, 1),
        "database": connection.vendor,
    }


def _find_pair(rollouts: int) -> tuple[Collection, Collection]:
    """A large collection and one beside it of the same tasks."""
    if connection.vendor == "postgresql":
        filled = fill_rollouts(rollouts=rollouts, traced=0.0)
        return Collection.objects.get(pk=filled.large), Collection.objects.get(pk=filled.beside)
    dataset = make_dataset(Environment.objects.get(slug="calculator"), tasks=rollouts // REPEATS)
    one, other = _plan(dataset, "one", REPEATS), _plan(dataset, "other", 1)
    with connection.cursor() as cursor:
        for collection in (one, other):
            now = connection.ops.adapt_datetimefield_value(timezone.now())
            cursor.execute(_END, [now, now, collection.pk])
        cursor.execute("ANALYZE")
    for collection in (one, other):
        found = measure_collection(collection)
        Collection.objects.filter(pk=collection.pk).update(
            rewarded=found.rewarded, reward_sum=(found.mean_reward or 0.0) * found.rewarded
        )
        collection.refresh_from_db()
    return one, other


def _plan(dataset: Any, name: str, repeats: int) -> Collection:
    model = PolicyModel.objects.create(slug=name, name=name, provider=Provider.SCRIPTED)
    agent = Agent.objects.create(slug=name, name=name)
    return plan_collection(Plan(dataset=dataset, agent=agent, policy_model=model, repeats=repeats))


def _seconds(read: Callable[[], object], servers: Sequence[int]) -> tuple[float, float]:
    """Of the clock, and the least that it could be on a machine with nothing else to do: the CPU of this process with
    the one that serves it, or all CPU shared by the cores, where PostgreSQL has several processes at a query. The
    better of two: the first may find nothing in memory."""
    connection.ensure_connection()
    pair = [os.getpid(), *([connection.connection.info.backend_pid] if servers else [])]
    took = []
    for _ in range(2):
        began, alone = time.perf_counter(), run_milliseconds(pair) / 1000
        before = time.process_time() + cpu_seconds(*servers)
        read()
        spent = time.process_time() + cpu_seconds(*servers) - before
        least = max(run_milliseconds(pair) / 1000 - alone, spent / (os.cpu_count() or 1))
        took.append((time.perf_counter() - began, least))
    wall, cpu = min(took)
    return round(wall, 2), round(cpu, 2)
