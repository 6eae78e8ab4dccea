"""A policy model that refuses, breaks and hangs: attempts and waits are bounded, and no fault becomes a reward."""

import time

import pytest

from tests.faults.installation import Installation, size, wait_until
from tests.faults.judging import judge

pytestmark = pytest.mark.slow

MAX_TRIES = 3
MAX_ATTEMPTS = 2


def test_every_rollout_of_a_model_that_fails_a_third_of_its_calls_ends_with_the_right_kind(
    cluster: Installation, show
) -> None:
    rollouts = size(200, 2_000)
    _, tools = cluster.tools()
    model = cluster.model("--fail-500", 0.3, "--hang", 0.02, "--latency-ms", 50)
    collection = cluster.plan(
        models={"mock": {"base_url": model, "call_timeout": 5.0, "max_tries": MAX_TRIES}},
        environments={"weather": {"base_url": tools}},
        collections={
            "all": {
                "faults": [""] * 100,
                "model": "mock",
                "environment": "weather",
                "repeats": rollouts // 100,
                "max_attempts": MAX_ATTEMPTS,
            }
        },
    )["all"]
    began = time.monotonic()
    workers = [cluster.worker(100) for _ in range(2)]
    cluster.wait_finished(collection, seconds=120)
    seconds = time.monotonic() - began
    figures = judge(cluster, collection)
    # Each call fails for good in 3 of 100 cases, which costs an attempt in 9; only a refusal is attempted again. That
    # waits are bounded is seen from the end: no reply ever comes to the calls that hang.
    assert set(figures["kinds"]) <= {"policy_error", "timed_out"}
    assert figures["completed"] >= 0.9 * rollouts
    assert (figures["again"] > 0, figures["max_attempt"], figures["lost"]) == (True, MAX_ATTEMPTS, 0)
    messages = cluster.rows("SELECT DISTINCT error_kind, error_message FROM rollouts_rollout")
    assert {(kind, "500" in message, "5 s" in message) for kind, message in messages} <= {
        ("", False, False),
        ("policy_error", True, False),
        ("timed_out", False, True),
    }
    assert cluster.leave(*workers) == [0, 0]
    show(**figures, seconds=round(seconds, 1))


def test_rollouts_of_a_model_that_never_answers_time_out(cluster: Installation, show) -> None:
    rollouts = size(60, 200)
    _, tools = cluster.tools()
    model = cluster.model("--hang", 1.0)
    collection = cluster.plan(
        models={"mock": {"base_url": model, "call_timeout": 1.0, "max_tries": 2}},
        environments={"weather": {"base_url": tools}},
        collections={"all": {"faults": [""] * rollouts, "model": "mock", "environment": "weather"}},
    )["all"]
    worker = cluster.worker(rollouts)
    cluster.wait_finished(collection, seconds=30)
    figures = judge(cluster, collection)
    assert (figures["completed"], figures["kinds"], figures["max_attempt"]) == (0, {"timed_out": rollouts}, 1)
    assert cluster.number("SELECT count(*) FROM rollouts_rollout WHERE reward IS NOT NULL") == 0
    assert cluster.leave(worker) == [0]
    show(**figures)


@pytest.mark.parametrize(("poisoned", "waits"), [(2, True), (4, False)], ids=["before", "beside"])
def test_a_poisoned_collection_slows_others_little(cluster: Installation, show, poisoned: int, waits: bool) -> None:
    """The model answers 500 to every call of one collection. The other comes later, to an open breaker, or with it."""
    rollouts = size(400, 2_000)
    _, tools = cluster.tools()
    model = cluster.model("--fail-on", "model_500", "--latency-ms", 400)
    rows = {
        "models": {"mock": {"base_url": model, "max_tries": 6}},
        "environments": {"weather": {"base_url": tools}},
    }
    served = {"model": "mock", "environment": "weather", "max_attempts": 3}
    worker = cluster.worker(24)

    def collect(name: str) -> float:
        began = time.monotonic()
        planned = cluster.plan(collections={name: {"faults": [""] * rollouts, **served}})[name]
        cluster.wait_finished(planned, seconds=180)
        assert cluster.rows(f"SELECT completed, failed FROM rollouts_collection WHERE id = {planned}") == [
            (rollouts, 0)
        ]
        return time.monotonic() - began

    cluster.plan(**rows)
    alone = collect("alone")
    bad = cluster.plan(collections={"bad": {"faults": ["model_500"] * poisoned, **served}})["bad"]
    if waits:
        wait_until(
            lambda: cluster.number("SELECT count(*) FROM rollouts_breaker WHERE cooldown > 10") == 1, 60, cluster.tell
        )
    beside = collect("beside")
    show(alone=round(alone, 1), beside=round(beside, 1))
    assert beside <= 1.5 * alone
    # Its rollouts fail only while others succeed, and the breaker tests one at a time.
    left = f"SELECT count(*) FROM rollouts_rollout WHERE collection_id = {bad} AND status IN ('queued', 'running')"
    for number in range(5 if waits else 0):
        if not cluster.number(left):
            break
        collect(f"more {number}")
    cluster.wait_finished(bad, seconds=120)
    kinds = cluster.rows(f"SELECT error_kind, count(*) FROM rollouts_rollout WHERE collection_id = {bad} GROUP BY 1")
    assert kinds == [("policy_error", poisoned)]
    assert cluster.leave(worker) == [0]
