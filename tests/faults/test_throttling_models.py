"""Models that throttle: every rollout completes in its first attempt, and nearly all that the model allows is used."""

import json
import time
import urllib.request

import pytest

from apps.rollouts.trace_payloads import unpack
from tests.faults.installation import Installation, wait_until

pytestmark = pytest.mark.slow

ALLOWED = 5


def throttling(model: str) -> dict:
    with urllib.request.urlopen(model.removesuffix("/v1") + "/throttling", timeout=10) as answer:
        return json.load(answer)


def plan(cluster: Installation, model: str, rollouts: int, *, tries: int = 1, **fields: object) -> int:
    """A collection of single calls, whose limits any wait for the model would exceed if it counted."""
    _, tools = cluster.tools()
    wanted = {
        "models": {"mock": {"base_url": model, "max_tries": tries, "call_timeout": 5.0}},
        "environments": {"weather": {"base_url": tools}},
        "collections": {
            "all": {
                "faults": [""] * rollouts,
                "model": "mock",
                "environment": "weather",
                "max_attempts": 1,
                "rollout_timeout": 20.0,
                **fields,
            }
        },
    }
    return cluster.plan(**wanted)["all"]


def assert_untouched(cluster: Installation, collection: int, rollouts: int) -> None:
    mine = f"collection_id = {collection}"
    assert cluster.rows(
        f"SELECT status, attempt, failures, lost, count(*) FROM rollouts_rollout WHERE {mine} GROUP BY 1, 2, 3, 4"
    ) == [("completed", 1, 0, 0, rollouts)]
    calls = cluster.rows("SELECT payload FROM rollouts_traceevent WHERE kind = 'model_call'")
    assert len(calls) == rollouts
    assert sum(json.loads(unpack(payload)).get("retries", 0) for (payload,) in calls) == 0
    kinds = cluster.rows("SELECT DISTINCT kind FROM rollouts_traceevent")
    assert ("error",) not in kinds


@pytest.mark.parametrize("workers", [1, 2])
def test_five_calls_a_second_are_used_by_workers(cluster: Installation, show, workers: int) -> None:
    rollouts = 300
    model = cluster.model("--window", ALLOWED, "--tool-calls", 0, "--latency-ms", 50)
    collection = plan(cluster, model, rollouts)
    running = [cluster.worker(200) for _ in range(workers)]
    cluster.wait_finished(collection, seconds=6 * rollouts / ALLOWED)
    assert_untouched(cluster, collection, rollouts)
    figures = throttling(model)
    rate = (rollouts - 1) / figures["seconds"]
    show(**figures, rate=round(rate, 2), share=round(rate / ALLOWED, 3))
    assert rate >= 0.85 * ALLOWED
    assert cluster.leave(*running) == [0] * workers


def test_a_model_that_only_throttles_fails_nothing(cluster: Installation, show) -> None:
    rollouts, closed = 300, 60
    model = cluster.model("--closed-for", closed, "--tool-calls", 0)
    collection = plan(cluster, model, rollouts)
    worker = cluster.worker(200)
    wait_until(lambda: throttling(model)["refused"] > 0, 30, cluster.tell)
    _, port = cluster.serve("--no-worker")
    key = cluster.plan(key="watcher")["key"]

    def explains() -> bool:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/v1/collections/{collection}/", headers={"Authorization": f"Bearer {key}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            held = json.load(answer)["held_back_by"]
        return any("Throttled until" in one and "rate limit reached" in one for one in held)

    wait_until(explains, 30, cluster.tell)
    began = time.monotonic()
    cluster.wait_finished(collection, seconds=closed + 90)
    assert_untouched(cluster, collection, rollouts)
    show(**throttling(model), finished_after=round(time.monotonic() - began, 1))
    assert cluster.leave(worker) == [0]


@pytest.mark.parametrize("share", [0.01, 0.08], ids=["1", "8"])
def test_random_throttling_costs_only_the_throttled_calls(cluster: Installation, show, share: float) -> None:
    """24 calls in flight, each of 50 ms; a throttled one is asked to wait for a second."""
    rollouts = 3_000
    model = cluster.model("--fail-429", share, "--latency-ms", 50, "--tool-calls", 0, "--seed", 3)
    collection = plan(cluster, model, rollouts)
    worker = cluster.worker(24)
    cluster.wait_ended(24, collection, seconds=30)
    began = time.monotonic()
    cluster.wait_finished(collection, seconds=60)
    rate = (rollouts - 24) / (time.monotonic() - began)
    show(rate=round(rate, 1))
    assert_untouched(cluster, collection, rollouts)
    # On two quiet cores 135 to 290. With a closed gate it was 6 to 13.
    assert rate >= 50
    assert cluster.leave(worker) == [0]
