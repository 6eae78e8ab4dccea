"""The addresses of lists and pages that scripts/measure_lists.py asks for, over what scripts/fill_rollouts.py made."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from scripts.fill_rollouts import Filled

LIST_MS = 150.0
PAGE_MS = 200.0
SEARCH_MS = 500.0
MODELS = ("2b", "8b", "32b")
NOUNS = (
    "datasets",
    "uploads",
    "column-mappings",
    "deletions",
    "environments",
    "policy-models",
    "agents",
    "collections",
    "collection-deletions",
    "reverifications",
    "pair-sets",
    "pairs",
    "exports",
    "comments",
    "workers",
)
PAGES = (
    "collections",
    "datasets",
    "environments",
    "verifiers",
    "models",
    "agents",
    "exports",
    "pair-sets",
    "reverifications",
    "workers",
    "people",
    "column-mappings",
    "account",
)


class Address(NamedTuple):
    """Paths that are asked in turn, and how long the 95th percentile may take."""

    name: str
    paths: Sequence[str]
    budget_ms: float = LIST_MS


class Rows(NamedTuple):
    """Some of what is there: primary keys for paths."""

    rollouts: list[int]
    traced: list[int]
    tasks: list[int]
    rewards: list[tuple[float, int]]


def read_rows(filled: Filled, count: int) -> Rows:
    """Evenly spread over the tables, so that cursors are of every depth."""
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
    """Every list and every page with rows of it."""
    yield from _api_lists(filled, rows)
    yield from _rollout_pages(filled, rows)
    yield from _table_addresses(filled, rows)
    yield from _other_pages(filled, rows)


def _api_lists(filled: Filled, rows: Rows) -> Iterator[Address]:
    yield from (Address(f"api {noun}", [f"/api/v1/{noun}/"]) for noun in NOUNS)
    yield Address("api collections, by model", ["/api/v1/collections/?policy_model=policy-8b"])
    yield Address("api comments, of a rollout", [f"/api/v1/comments/?rollout={pk}" for pk in rows.rollouts])
    yield Address("api tasks", ["/api/v1/tasks/"])
    yield Address("api tasks, deep", [f"/api/v1/tasks/?cursor={_cursor('id', pk)}" for pk in rows.tasks])
    version = "/api/v1/tasks/?dataset=arithmetic&version=1"
    yield Address("api tasks, of a version", [version, "/api/v1/tasks/?dataset=search-qa"])
    yield Address("api tasks, by split and tag", [f"{version}&split=validation", f"{version}&tag=hard"])
    yield Address("api tasks, retired", [f"{version}&is_retired=true", "/api/v1/tasks/?is_retired=true"])
    yield Address("api tasks, by id of the row", [f"{version}&external_id=task-{n}" for n in range(0, 90_000, 5_000)])
    yield Address("api tasks, by words", [f"{version}&text=what+is+{n}" for n in range(7, 99_000, 4_000)], SEARCH_MS)
    for name, query in _rollout_queries(filled).items():
        paths = [f"/api/v1/rollouts/?{each}" for each in query]
        yield Address(f"api rollouts{name}", paths)
    deep = [_cursor("-id", pk) for pk in rows.rollouts]
    yield Address("api rollouts, deep", [f"/api/v1/rollouts/?cursor={cursor}" for cursor in deep])
    within = f"/api/v1/rollouts/?collection={filled.large}"
    yield Address("api rollouts, of a collection, deep", [f"{within}&cursor={cursor}" for cursor in deep])
    failed = [f"{within}&status=failed&cursor={cursor}" for cursor in deep]
    yield Address("api rollouts, failed of a collection, deep", failed)
    oldest = [f"{within}&ordering=id&cursor={_cursor('id', pk)}" for pk in rows.rollouts]
    yield Address("api rollouts, oldest first, deep", oldest)
    yield Address("api rollouts, of a task", [f"/api/v1/rollouts/?task={pk}" for pk in rows.tasks])
    yield Address("api rollout", [f"/api/v1/rollouts/{pk}/" for pk in rows.traced])
    yield Address("api rollout, trace", [f"/api/v1/rollouts/{pk}/trace/" for pk in rows.traced])
    yield Address("api collection", [f"/api/v1/collections/{pk}/" for pk in filled.collections])
    profile = f"/api/v1/collections/{filled.large}/profile/?after="
    yield Address("api profile of a collection, deep", [f"{profile}{pk}" for pk in rows.tasks])


def _rollout_queries(filled: Filled) -> dict[str, list[str]]:
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


def _rollout_pages(filled: Filled, rows: Rows) -> Iterator[Address]:
    large = f"/collections/{filled.large}/"
    for name, query in _rollout_queries(filled).items():
        yield Address(f"page rollouts{name}", [f"/rollouts/?{each}" for each in query])
    yield Address("page rollouts, oldest first", ["/rollouts/?sort=id"])
    yield Address("page rollouts, deep", [f"/rollouts/?after={pk}" for pk in rows.rollouts])
    after = [f"{reward!r}~{pk}" for reward, pk in rows.rewards]
    for order in ("-reward", "reward"):
        yield Address(f"page rollouts, by {order}", [f"/rollouts/?sort={order}"])
        yield Address(f"page rollouts, by {order}, deep", [f"/rollouts/?sort={order}&after={one}" for one in after])
        of_one = [f"/rollouts/?sort={order}&collection={pk}" for pk in filled.collections]
        yield Address(f"page rollouts, by {order} in a collection", of_one)
        deep = [f"/rollouts/?sort={order}&collection={filled.large}&after={one}" for one in after]
        yield Address(f"page rollouts, by {order} in a collection, deep", deep)
    without = [f"/rollouts/?sort=-reward&after=~{pk}" for pk in rows.rollouts]
    yield Address("page rollouts, by reward, those without", without)
    ranges = ["min_reward=0.9", "max_reward=0.1", "min_reward=0.3&max_reward=0.35", "min_reward=7"]
    yield Address("page rollouts, range of rewards", [f"/rollouts/?{each}" for each in ranges])
    inside = [f"/rollouts/?collection={pk}&{each}" for pk in filled.collections for each in ranges]
    yield Address("page rollouts, range of rewards in a collection", inside)
    yield Address("page rollouts, range and order of rewards", [f"/rollouts/?{each}&sort=reward" for each in ranges])
    of_model = [f"/rollouts/?policy_model=policy-{size}" for size in MODELS]
    yield Address("page rollouts, by model", of_model)
    yield Address("page rollouts, failed by model", [f"{one}&status=failed" for one in of_model])
    yield Address("page rollouts, best by model", [f"{one}&sort=-reward" for one in of_model])
    yield Address("page rollouts, by dataset", [f"/rollouts/?dataset={slug}" for slug in ("arithmetic", "search-qa")])
    deep = [f"/rollouts/?dataset=search-qa&after={pk}" for pk in rows.rollouts]
    yield Address("page rollouts, by dataset, deep", deep)
    versions = ["step-100", "step-300", "step-900"]
    yield Address("page rollouts, by version", [f"/rollouts/?version={version}" for version in versions])
    of_version = [f"/rollouts/?collection={filled.large}&version={version}" for version in versions]
    yield Address("page rollouts, by version in a collection", of_version)
    yield Address("page collection", [large], PAGE_MS)
    yield Address("page collection, others", [f"/collections/{pk}/" for pk in filled.collections[1:]], PAGE_MS)
    yield Address("page collection, filtered", [f"{large}?status=failed", f"{large}?sort=-reward"], PAGE_MS)
    yield Address("page collections compared", [f"/collections/compare/?a={filled.large}&b={filled.beside}"], PAGE_MS)
    yield Address("page tasks of a collection", [f"{large}tasks/?after={pk}" for pk in rows.tasks], PAGE_MS)
    yield Address("page tasks never solved", [f"{large}tasks/?bucket=never"], SEARCH_MS)
    yield Address("page trace", [f"/rollouts/{pk}/" for pk in rows.traced], PAGE_MS)


def _table_addresses(filled: Filled, rows: Rows) -> Iterator[Address]:
    """The table of rollouts by the grammar of its filter, by words of traces, in each order, and its counts."""
    large, small = f"collection:{filled.large} ", f"collection:{filled.collections[3]} "
    filters = {
        "numbers": ["steps:>9", "calls:1", "tokens:>9k", "seconds:<3", "cost:>0.02", "output:>3900", "input:400..405"],
        "numbers that nothing has": ["steps:>50", "tokens:>1m", "seconds:>1000", "cost:>5", "reward:0.991..0.999"],
        "flags": ["flag:truncated", "flag:credentials", "flag:retried", "flag:tool_error", "-flag:truncated"],
        "tools": ["tool:search", "-tool:calculator status:completed"],
        "tasks": ["split:validation", "tag:hard", "tag:geometry -split:train", "-split:*"],
        "names": ["model:policy-8*", "agent:agent-t*", "dataset:search-qa", "environment:calc*", "version:step-3*"],
        "several": ["reward:>0.5 stop:max_steps", "status:failed error:timed_out", "reward:1 steps:>8 tag:hard"],
    }
    for name, texts in filters.items():
        asked = [f"{where}{text}" for text in texts for where in ("", large, small)]
        yield Address(f"page filter, {name}", [_table(text) for text in asked], SEARCH_MS)
        yield Address(f"api filter, {name}", [_table(text, "/api/v1/rollouts/") for text in asked], SEARCH_MS)
    one = rows.rollouts[len(rows.rollouts) // 2]
    words = {
        "rare": ["v19999", "v12345", f"rollout{one}", '"cannot find"', "找不到", "nowhere"],
        "common": ["calculator", "the", "v0", "v1", '"what is"', "v1*", "rollout12*"],
        "with more": ["v0 status:failed", "v7 reward:1", '"cannot find" reward:0', "-v0", "calculator -v3 steps:>5"],
    }
    for name, texts in words.items():
        asked = [f"{where}{text}" for text in texts for where in ("", large, small)]
        yield Address(f"page search, {name}", [_table(text) for text in asked], SEARCH_MS)
    for key in ("steps", "calls", "tokens", "seconds", "cost"):
        for sign in ("", "-"):
            order = f"&sort={sign}{key}"
            yield Address(f"page rollouts, by {sign}{key}", [f"/rollouts/?{order}"])
            inside = [f"/collections/{pk}/?{order}" for pk in filled.collections]
            yield Address(f"page collection, by {sign}{key}", inside, PAGE_MS)
    counted = ["", "reward:1", "status:failed", "steps:>9", "tag:hard", "calculator", "v19999", "flag:retried"]
    yield Address("counts", [_table(text, "/rollouts/facets/") for text in counted], SEARCH_MS)
    within = [f"{_table(text, '/rollouts/facets/')}&of={pk}" for text in counted for pk in filled.collections[:4]]
    yield Address("counts in a collection", within, SEARCH_MS)
    yield Address("glance at a rollout", [f"/rollouts/{pk}/peek/" for pk in rows.traced], PAGE_MS)


def _table(text: str, path: str = "/rollouts/") -> str:
    return f"{path}?{urlencode({'q': text})}" if text else f"{path}?"


def _other_pages(filled: Filled, rows: Rows) -> Iterator[Address]:
    yield Address("page home", ["/"])
    yield from (Address(f"page {noun}", [f"/{noun}/"]) for noun in PAGES)
    data = "/datasets/arithmetic/"
    yield Address("page dataset", [data, "/datasets/search-qa/"])
    yield Address("page dataset, deep", [f"{data}?after={pk}" for pk in rows.tasks])
    filtered = ["split=validation", "tag=hard", "retired=1", "split=none", "tag=none"]
    yield Address("page dataset, filtered", [f"{data}?{each}" for each in filtered], SEARCH_MS)
    yield Address("page dataset, by words", [f"{data}?q=what+is+{n}" for n in range(7, 99_000, 4_000)], SEARCH_MS)
    yield Address("page task and its groups", [f"/tasks/{pk}/" for pk in rows.tasks])
    yield Address("page model", ["/models/policy-2b/", "/models/policy-8b/"])
    yield Address("page environment", ["/environments/calculator/"])
    yield Address("page agent", ["/agents/agent-terse/"])
    yield Address("page new export", [f"/exports/new/?collection={filled.large}"])
    yield Address("page new collection", ["/collections/new/", f"/collections/new/?clone={filled.large}"], SEARCH_MS)
    yield Address("page delete a collection", [f"/collections/{filled.large}/delete/"])
    yield Address("page delete a dataset", [f"{data}delete/"])
    yield Address("metrics for Prometheus", ["/metrics"])


def _cursor(ordering: str, pk: int) -> str:
    return urlsafe_b64encode(json.dumps([ordering, pk], separators=(",", ":")).encode()).decode().rstrip("=")
