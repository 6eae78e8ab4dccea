"""What it costs to read the figures of a large collection: rewards, components, tools, groups, two side by side."""

import time
from collections.abc import Callable
from typing import Any

from django.db import connection
from django.utils import timezone

from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.models import PolicyModel, Provider
from apps.rollouts.breakdowns import break_down
from apps.rollouts.contrasting import contrast_collections
from apps.rollouts.measuring import measure_collection
from apps.rollouts.models import Collection
from apps.rollouts.planning import plan_collection
from apps.rollouts.profiles import profile_tasks
from scripts.reference_work import make_dataset

REPEATS = 8

# Everything that a rollout can have, from its id: a fifth fails, groups are never, sometimes and always solved.
_END = """
    UPDATE rollouts_rollout SET
        status = CASE WHEN id %% 50 = 0 THEN 'failed' ELSE 'completed' END,
        error_kind = CASE WHEN id %% 50 = 0 THEN 'timed_out' ELSE '' END,
        stop_reason = CASE WHEN id %% 50 = 0 THEN '' WHEN id %% 7 = 0 THEN 'max_steps' ELSE 'answered' END,
        reward = CASE WHEN id %% 50 = 0 THEN NULL WHEN (id * 7919 + task_id) %% 11 > task_id %% 13 THEN 1.0
            ELSE (id %% 4) / 8.0 END,
        components = {components}, tools = {tools}, answer = CAST(id %% 5 AS {text}),
        attempt = 1, turns = 3, tool_calls = 2, input_tokens = 300 + id %% 1000, output_tokens = 50 + id %% 700,
        duration = 1 + id %% 9, model_time = 0.7 + id %% 9, tool_time = 0.2, verify_time = 0.1,
        started_at = %s, finished_at = %s
    WHERE collection_id = %s
"""
_JSON = {
    "postgresql": {
        "components": "jsonb_build_object('correct', (id %% 2)::float8, 'format', (id %% 4) / 4.0)",
        "tools": "jsonb_build_object('search', jsonb_build_array(2, id %% 2, 0.2))",
        "text": "varchar",
    },
    "sqlite": {
        "components": "json_object('correct', id %% 2, 'format', (id %% 4) / 4.0)",
        "tools": "json_object('search', json_array(2, id %% 2, 0.2))",
        "text": "text",
    },
}


def measure_figures(*, rollouts: int) -> dict[str, Any]:
    """Seconds to read each kind of figures of a collection of so many rollouts, eight a task."""
    dataset = make_dataset(Environment.objects.get(slug="calculator"), tasks=rollouts // REPEATS)
    one, other = _plan(dataset, "one", REPEATS), _plan(dataset, "other", 1)
    with connection.cursor() as cursor:
        for collection in (one, other):
            now = connection.ops.adapt_datetimefield_value(timezone.now())
            cursor.execute(_END.format(**_JSON[connection.vendor]), [now, now, collection.pk])
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")
    for collection in (one, other):
        found = measure_collection(collection)
        Collection.objects.filter(pk=collection.pk).update(
            rewarded=found.rewarded, reward_sum=(found.mean_reward or 0.0) * found.rewarded
        )
        collection.refresh_from_db()
    return {
        "rollouts": one.total,
        "tasks": one.total // REPEATS,
        "measure_s": _seconds(lambda: measure_collection(one)),
        "by_tag_s": _seconds(lambda: break_down(one, "tag")),
        "profile_page_s": _seconds(lambda: profile_tasks(one, after=one.total // 2)),
        "contrast_s": _seconds(lambda: contrast_collections(one, other)),
        "database": connection.vendor,
    }


def _plan(dataset: Any, name: str, repeats: int) -> Collection:
    model = PolicyModel.objects.create(slug=name, name=name, provider=Provider.SCRIPTED)
    agent = Agent.objects.create(slug=name, name=name)
    return plan_collection(dataset=dataset, agent=agent, policy_model=model, repeats=repeats)


def _seconds(read: Callable[[], object]) -> float:
    """The better of two: the first may find nothing in memory."""
    took = []
    for _ in range(2):
        began = time.perf_counter()
        read()
        took.append(time.perf_counter() - began)
    return round(min(took), 2)
