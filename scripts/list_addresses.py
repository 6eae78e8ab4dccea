"""URLs of lists and pages for scripts/measure_lists.py, over the data of scripts/fill_rollouts.py."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from scripts.measuring import Filled

LIST_MS = 150.0
PAGE_MS = 200.0
SEARCH_MS = 500.0
MODELS = ("2b", "8b", "32b")
ORDERS = [f"{sign}{key}" for key in ("steps", "calls", "tokens", "seconds", "cost") for sign in ("", "-")]
NOUNS = (
    "datasets",
    "suites",
    "uploads",
    "column-mappings",
    "deletions",
    "environments",
    "policy-models",
    "agents",
    "collections",
    "collection-deletions",
    "rechecks",
    "reverifications",
    "scans",
    "pair-sets",
    "pairs",
    "exports",
    "comments",
    "workers",
)
PAGES = (
    "collections",
    "datasets",
    "suites",
    "environments",
    "verifiers",
    "models",
    "agents",
    "exports",
    "pair-sets",
    "rechecks",
    "reverifications",
    "scans",
    "workers",
    "people",
    "column-mappings",
    "account",
)

Table = dict[str, list[str]]
"""Paths by the name under which they are measured."""


class Address(NamedTuple):
    """Paths that are requested in turn, and the limit of their 95th percentile."""

    name: str
    paths: Sequence[str]
    budget_ms: float


class Rows(NamedTuple):
    """Sample primary keys for URLs."""

    rollouts: list[int]
    traced: list[int]
    tasks: list[int]
    rewards: list[tuple[float, int]]


def read_rows(filled: Filled, count: int) -> Rows:
    """Return ids spread evenly over the tables, so that cursors have every depth."""
    from apps.rollouts.models import Rollout, TraceEvent
    from apps.tasks.models import Task

    newest = Rollout.objects.order_by("-pk").values_list("pk", flat=True)[0]
    ids = [newest * place // count for place in range(1, count + 1)]
    spread = [(row.reward, row.pk) for row in Rollout.objects.filter(pk__in=ids) if row.reward is not None]
    first = Rollout.objects.filter(collection=filled.large).order_by("pk").values_list("pk", flat=True)[0]
    traced = [
        TraceEvent.objects.filter(rollout_id__gte=first + place * filled.rollouts // (2 * count))
        .order_by("rollout_id", "attempt", "seq")
        .values_list("rollout_id", flat=True)[0]
        for place in range(count)
    ]
    last_task = Task.objects.order_by("-pk").values_list("pk", flat=True)[0]
    return Rows(ids, traced, [last_task * place // (2 * count) + 1 for place in range(count)], spread)


def find_addresses(filled: Filled, rows: Rows) -> Iterator[Address]:
    """All lists, and all pages with rows of lists."""
    lists = {**_api_lists(filled, rows), **_rollout_lists(filled, rows), **_other_lists(filled, rows)}
    for budget, table in ((LIST_MS, lists), (PAGE_MS, _pages(filled, rows)), (SEARCH_MS, _searches(filled, rows))):
        yield from (Address(name, paths, budget) for name, paths in table.items())


def _api_lists(filled: Filled, rows: Rows) -> Table:
    api, version = "/api/v1/rollouts/", "/api/v1/tasks/?dataset=arithmetic&version=1"
    within, deep = f"{api}?collection={filled.large}", [_cursor("-id", pk) for pk in rows.rollouts]
    oldest = [_cursor("id", pk) for pk in rows.rollouts]
    return {
        **{f"api {noun}": [f"/api/v1/{noun}/"] for noun in NOUNS},
        "api collections, by model": ["/api/v1/collections/?policy_model=policy-8b"],
        "api comments, of a rollout": [f"/api/v1/comments/?rollout={pk}" for pk in rows.rollouts],
        "api tasks": ["/api/v1/tasks/"],
        "api tasks, deep": [f"/api/v1/tasks/?cursor={_cursor('id', pk)}" for pk in rows.tasks],
        "api tasks, of a version": [version, "/api/v1/tasks/?dataset=search-qa"],
        "api tasks, by split and tag": [f"{version}&split=validation", f"{version}&tag=hard"],
        "api tasks, retired": [f"{version}&is_retired=true", "/api/v1/tasks/?is_retired=true"],
        "api tasks, by id of the row": [f"{version}&external_id=task-{n}" for n in range(0, 90_000, 5_000)],
        **{f"api rollouts{name}": [f"{api}?{one}" for one in asked] for name, asked in _queries(filled).items()},
        "api rollouts, deep": [f"{api}?cursor={cursor}" for cursor in deep],
        "api rollouts, of a collection, deep": [f"{within}&cursor={cursor}" for cursor in deep],
        "api rollouts, failed of a collection, deep": [f"{within}&status=failed&cursor={cursor}" for cursor in deep],
        **{
            f"api rollouts, of a collection, by {order}": [
                f"{api}?collection={pk}&ordering={order}" for pk in filled.collections
            ]
            for order in ("turns", "-tokens", "cost")
        },
        "api rollouts, oldest first, deep": [f"{within}&ordering=id&cursor={cursor}" for cursor in oldest],
        "api rollouts, of a task": [f"{api}?task={pk}" for pk in rows.tasks],
        "api rollout": [f"{api}{pk}/" for pk in rows.traced],
        "api rollout, trace": [f"{api}{pk}/trace/" for pk in rows.traced],
        "api collection": [f"/api/v1/collections/{pk}/" for pk in filled.collections],
        "api profile of a collection, deep": [
            f"/api/v1/collections/{filled.large}/profile/?after={pk}" for pk in rows.tasks
        ],
    }


def _queries(filled: Filled) -> dict[str, list[str]]:
    """Filters that the API and the pages have by the same names."""
    large, some = f"collection={filled.large}", [f"collection={pk}" for pk in filled.collections]
    states = ["queued", "running", "completed", "failed", "cancelled"]
    stops = ["answered", "max_steps", "time_limit", "content_filter"]
    errors = ["policy_error", "worker_lost", "judge_error"]
    return {
        "": [""],
        ", of a collection": some,
        ", by status": [f"status={state}" for state in states],
        ", by status in a collection": [f"{one}&status={state}" for one in some for state in states],
        ", by stop reason": [f"stop_reason={stop}" for stop in stops],
        ", by stop reason in a collection": [f"{large}&stop_reason={stop}" for stop in stops],
        ", by error": [f"error_kind={kind}" for kind in errors],
        ", by error in a collection": [f"{large}&error_kind={kind}" for kind in errors],
    }


def _rollout_lists(filled: Filled, rows: Rows) -> Table:
    """The pages of the table of rollouts, by the queries after their address."""
    large, after = f"collection={filled.large}", [f"after={reward!r}~{pk}" for reward, pk in rows.rewards]
    ranges = ["min_reward=0.9", "max_reward=0.1", "min_reward=0.3&max_reward=0.35", "min_reward=7"]
    of_model = [f"policy_model=policy-{size}" for size in MODELS]
    versions = [f"version={version}" for version in ("step-100", "step-300", "step-900")]
    queries = {
        **_queries(filled),
        ", oldest first": ["sort=id"],
        ", deep": [f"after={pk}" for pk in rows.rollouts],
        ", by reward, those without": [f"sort=-reward&after=~{pk}" for pk in rows.rollouts],
        ", range of rewards": ranges,
        ", range of rewards in a collection": [f"collection={pk}&{one}" for pk in filled.collections for one in ranges],
        ", range and order of rewards": [f"{one}&sort=reward" for one in ranges],
        ", by model": of_model,
        ", failed by model": [f"{one}&status=failed" for one in of_model],
        ", best by model": [f"{one}&sort=-reward" for one in of_model],
        ", by dataset": [f"dataset={slug}" for slug in ("arithmetic", "search-qa")],
        ", by dataset, deep": [f"dataset=search-qa&after={pk}" for pk in rows.rollouts],
        ", by version": versions,
        ", by version in a collection": [f"{large}&{version}" for version in versions],
        **{f", by {order}": [f"&sort={order}"] for order in ORDERS},
    }
    for order in ("-reward", "reward"):
        queries |= {
            f", by {order}": [f"sort={order}"],
            f", by {order}, deep": [f"sort={order}&{one}" for one in after],
            f", by {order} in a collection": [f"sort={order}&collection={pk}" for pk in filled.collections],
            f", by {order} in a collection, deep": [f"sort={order}&{large}&{one}" for one in after],
        }
    return {f"page rollouts{name}": [f"/rollouts/?{query}" for query in asked] for name, asked in queries.items()}


def _other_lists(filled: Filled, rows: Rows) -> Table:
    data = "/datasets/arithmetic/"
    return {
        "page home": ["/"],
        **{f"page {noun}": [f"/{noun}/"] for noun in PAGES},
        "page dataset": [data, "/datasets/search-qa/"],
        "page dataset, deep": [f"{data}?after={pk}" for pk in rows.tasks],
        "page task and its groups": [f"/tasks/{pk}/" for pk in rows.tasks],
        "page model": ["/models/policy-2b/", "/models/policy-8b/"],
        "page environment": ["/environments/calculator/"],
        "page agent": ["/agents/agent-terse/"],
        "page new export": [f"/exports/new/?collection={filled.large}"],
        "page delete a collection": [f"/collections/{filled.large}/delete/"],
        "page delete a dataset": [f"{data}delete/"],
        "metrics for Prometheus": ["/metrics"],
    }


def _pages(filled: Filled, rows: Rows) -> Table:
    """Pages of one collection or rollout."""
    large = f"/collections/{filled.large}/"
    return {
        "page collection": [large],
        "page collection, others": [f"/collections/{pk}/" for pk in filled.collections[1:]],
        "page collection, filtered": [f"{large}?status=failed", f"{large}?sort=-reward"],
        **{
            f"page collection, by {order}": [f"/collections/{pk}/?&sort={order}" for pk in filled.collections]
            for order in ORDERS
        },
        "page collections compared": [f"/collections/compare/?a={filled.large}&b={filled.beside}"],
        "page tasks of a collection": [f"{large}tasks/?after={pk}" for pk in rows.tasks],
        "page trace": [f"/rollouts/{pk}/" for pk in rows.traced],
        "glance at a rollout": [f"/rollouts/{pk}/peek/" for pk in rows.traced],
    }


def _searches(filled: Filled, rows: Rows) -> Table:
    """The table of rollouts by the grammar of its filter, by words of traces, and its counts; tasks by words."""
    data, words = "/datasets/arithmetic/", [f"what+is+{n}" for n in range(7, 99_000, 4_000)]
    filtered = ["split=validation", "tag=hard", "retired=1", "split=none", "tag=none"]
    filters = {
        "numbers": ["steps:>9", "calls:1", "tokens:>9k", "seconds:<3", "cost:>0.02", "output:>3900", "input:400..405"],
        "numbers that nothing has": ["steps:>50", "tokens:>1m", "seconds:>1000", "cost:>5", "reward:0.991..0.999"],
        "flags": ["flag:truncated", "flag:credentials", "flag:retried", "flag:tool_error", "-flag:truncated"],
        "tools": ["tool:search", "-tool:calculator status:completed"],
        "tasks": ["split:validation", "tag:hard", "tag:geometry -split:train", "-split:*"],
        "names": ["model:policy-8*", "agent:agent-t*", "dataset:search-qa", "environment:calc*", "version:step-3*"],
        "several": ["reward:>0.5 stop:max_steps", "status:failed error:timed_out", "reward:1 steps:>8 tag:hard"],
    }
    one = rows.rollouts[len(rows.rollouts) // 2]
    searched = {
        "rare": ["v19999", "v12345", f"rollout{one}", '"cannot find"', "找不到", "nowhere"],
        "common": ["calculator", "the", "v0", "v1", '"what is"', "v1*", "rollout12*"],
        "with more": ["v0 status:failed", "v7 reward:1", '"cannot find" reward:0', "-v0", "calculator -v3 steps:>5"],
    }
    counted = ["", "reward:1", "status:failed", "steps:>9", "tag:hard", "calculator", "v19999", "flag:retried"]
    counts = [_table(text, "/rollouts/facets/") for text in counted]
    return {
        "api tasks, by words": [f"/api/v1/tasks/?dataset=arithmetic&version=1&text={text}" for text in words],
        "page dataset, filtered": [f"{data}?{each}" for each in filtered],
        "page dataset, by words": [f"{data}?q={text}" for text in words],
        "page tasks never solved": [f"/collections/{filled.large}/tasks/?bucket=never"],
        "page new collection": ["/collections/new/", f"/collections/new/?clone={filled.large}"],
        **{f"page filter, {name}": _everywhere(filled, texts) for name, texts in filters.items()},
        **{f"api filter, {name}": _everywhere(filled, texts, "/api/v1/rollouts/") for name, texts in filters.items()},
        **{f"page search, {name}": _everywhere(filled, texts) for name, texts in searched.items()},
        "counts": counts,
        "counts in a collection": [f"{count}&of={pk}" for count in counts for pk in filled.collections[:4]],
    }


def _everywhere(filled: Filled, texts: Sequence[str], path: str = "/rollouts/") -> list[str]:
    """Each text over all collections, in a large one and in a small one."""
    places = ("", f"collection:{filled.large} ", f"collection:{filled.collections[3]} ")
    return [_table(f"{place}{text}", path) for text in texts for place in places]


def _table(text: str, path: str) -> str:
    return f"{path}?{urlencode({'q': text})}" if text else f"{path}?"


def _cursor(ordering: str, pk: int) -> str:
    return urlsafe_b64encode(json.dumps([ordering, pk], separators=(",", ":")).encode()).decode().rstrip("=")
