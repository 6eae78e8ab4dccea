"""Tool servers that hang, die, answer 500, 50 MB or nonsense: whoever has nothing to do with them does not notice."""

import json
import time
from collections import Counter, defaultdict

import pytest

from apps.rollouts.trace_payloads import unpack
from tests.faults.installation import Installation, size, wait_until
from tests.faults.judging import judge

pytestmark = pytest.mark.slow

OUTCOMES = {
    "": ("completed", "", ""),
    "tool_hang": ("completed", "", "timeout"),
    "tool_500": ("completed", "", "http_500"),
    "tool_large": ("completed", "", "too_large"),
    "seed_500": ("failed", "environment_error", ""),
    "verify_hang": ("failed", "timed_out", ""),
    "verify_500": ("failed", "verifier_error", ""),
    "verify_text": ("failed", "verifier_error", ""),
    "verify_nothing": ("failed", "verifier_error", ""),
    "verify_large": ("failed", "verifier_error", ""),
}
"""By what a task's server does: how its rollout ends, with which kind, and which error its tool calls show."""
# What is measured here is each rollout's own end; with a breaker they would wait for the server to mend itself.
UNBROKEN = {"GYMWEB_BREAKER_FAILURES": 1_000_000}


def test_each_fault_of_a_tool_server_has_its_designed_effect_only(cluster: Installation, show) -> None:
    times = size(3, 12)
    bystanders = size(200, 2_000)
    model = cluster.model("--latency-ms", 100)
    _, good = cluster.tools("--tool-ms", 20)
    _, bad = cluster.tools("--tool-ms", 20)
    doomed, dying = cluster.tools("--tool-ms", 20)
    limits = {"call_timeout": 6.0, "verify_timeout": 6.0, "max_tries": 2}
    faults = [fault for fault in OUTCOMES for _ in range(times)]
    planned = cluster.plan(
        models={"mock": {"base_url": model}},
        environments={
            "good": {"base_url": good},
            "bad": {"base_url": bad, **limits},
            "dying": {"base_url": dying, **limits},
        },
        collections={
            "good": {"faults": [""] * bystanders, "model": "mock", "environment": "good"},
            "bad": {"faults": faults, "model": "mock", "environment": "bad"},
            "dying": {"faults": ["tool_die"] + [""] * 9, "model": "mock", "environment": "dying"},
        },
    )
    workers = [cluster.worker(128, **UNBROKEN) for _ in range(2)]
    cluster.wait_finished(*planned.values(), seconds=120)
    unaffected = judge(cluster, planned["good"])
    assert (unaffected["completed"], unaffected["again"]) == (bystanders, 0)

    assert outcomes(cluster, planned["bad"]) == Counter({(fault, *end): times for fault, end in OUTCOMES.items()})
    faulty = judge(cluster, planned["bad"])
    assert faulty["max_attempt"] == 2

    assert doomed.exit_code == 1
    dead = judge(cluster, planned["dying"])
    assert dead["kinds"] == {"environment_error": 10}
    assert cluster.leave(*workers) == [0, 0]
    show(unaffected=unaffected, faulty=faulty, dead=dead)


def outcomes(cluster: Installation, collection: int) -> Counter[tuple[str, str, str, str]]:
    """(fault, status, error kind, error of the tool calls) of every rollout."""
    mine = f"r.collection_id = {collection}"
    results = cluster.rows(
        "SELECT r.id, e.payload FROM rollouts_rollout r JOIN rollouts_traceevent e"
        f" ON e.rollout_id = r.id AND e.attempt = r.attempt AND e.kind = 'tool_result' WHERE {mine}"
    )
    errors: dict[int, list[str]] = defaultdict(list)
    for rollout, payload in results:
        errors[rollout].append(json.loads(unpack(payload)).get("error", ""))
    rows = cluster.rows(
        "SELECT r.id, t.row_json::json->>'fault', r.status, r.error_kind"
        f" FROM rollouts_rollout r JOIN tasks_task t ON t.id = r.task_id WHERE {mine}"
    )
    return Counter((*outcome, min(filter(None, errors[rollout]), default="")) for rollout, *outcome in rows)


def test_a_block_of_tasks_that_no_verifier_survives_costs_no_more_than_its_own_attempts(
    cluster: Installation, show
) -> None:
    bad, good = size(40, 200), size(60, 400)
    model = cluster.model("--latency-ms", 50)
    _, tools = cluster.tools("--tool-ms", 5)
    faults = ["verify_500"] * bad + [""] * good
    collection = cluster.plan(
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools, "max_tries": 2}},
        collections={"all": {"faults": faults, "model": "mock", "environment": "weather"}},
    )["all"]
    began = time.monotonic()
    workers = [cluster.worker(32) for _ in range(2)]
    cluster.wait_finished(collection, seconds=60)
    seconds = time.monotonic() - began
    figures = judge(cluster, collection)
    assert (figures["completed"], figures["kinds"], figures["max_attempt"]) == (good, {"verifier_error": bad}, 2)
    assert cluster.number("SELECT count(*) FROM rollouts_breaker") == 0
    assert cluster.leave(*workers) == [0, 0]
    show(**figures, seconds=round(seconds, 1))


def test_rollouts_wait_for_a_tool_server_that_died_and_complete_when_it_is_back(cluster: Installation, show) -> None:
    rollouts = size(150, 600)
    model = cluster.model("--latency-ms", 200)
    server, tools = cluster.tools("--tool-ms", 20)
    port = int(tools.rpartition(":")[2])
    collection = cluster.plan(
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools, "max_tries": 2}},
        collections={"all": {"faults": [""] * rollouts, "model": "mock", "environment": "weather"}},
    )["all"]
    workers = [cluster.worker(32) for _ in range(2)]
    cluster.wait_ended(rollouts // 4, collection, seconds=30)
    server.kill()
    open_breaker = "SELECT count(*) FROM rollouts_breaker WHERE state = 'open'"
    waited = wait_until(lambda: cluster.number(open_breaker) == 1, 15, cluster.tell)
    died = time.monotonic()
    cluster.tools("--tool-ms", 20, port=port)
    cluster.wait_finished(collection, seconds=90)
    figures = judge(cluster, collection)
    assert figures["completed"] == rollouts
    assert cluster.number("SELECT count(*) FROM rollouts_breaker WHERE state <> 'closed'") == 0
    assert cluster.leave(*workers) == [0, 0]
    show(**figures, breaker_opened_after_s=round(waited, 1), finished_after_s=round(time.monotonic() - died, 1))
