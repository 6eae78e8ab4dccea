"""Whole collections with a real server, many rollouts at once, over both wires."""

import threading
import time
from collections import Counter

import pytest

from tests.vllm.serving import Bench, Vllm
from tests.vllm.traces import model_calls

pytestmark = pytest.mark.slow
SEATS = 64


def test_sixty_four_rollouts_at_once_all_complete_with_their_tokens(bench: Bench, strong: Vllm, show) -> None:
    ended = threading.Event()
    asked: list[float] = []

    def watch() -> None:
        while not ended.wait(0.05):
            asked.append(strong.gauge("vllm:num_requests_running") + strong.gauge("vllm:num_requests_waiting"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    try:
        report = bench.collect("sums", "strong", "--repeats", 6, "--seats", SEATS)
    finally:
        ended.set()
        watcher.join()
    seconds = time.monotonic() - began
    collection = report["collection"]
    calls = [call for own in model_calls(bench.installation, collection).values() for call in own]
    show(
        rollouts=report["rollouts"],
        mean_reward=round(report["mean_reward"], 3),
        calls=len(calls),
        most_requests_at_the_server=max(asked),
        seconds_with_the_command_itself=round(seconds, 1),
    )
    assert (report["rollouts"], report["completed"], report["failed"], report["retried"]) == (600, 600, 0, 0)
    assert report["mean_reward"] > 0.9
    assert SEATS / 2 < max(asked) <= SEATS
    assert Counter((call.tokens is not None, call.tokens_note, call.version) for call in calls) == {
        (True, "", "strong"): len(calls)
    }


def test_a_collection_over_the_responses_api_is_rewarded_as_well(bench: Bench, strong: Vllm, show) -> None:
    fields = {"provider": "vllm", "wire": "responses", "base_url": strong.base_url, "model_name": "strong"}
    bench.installation.plan(models={"strong-responses": fields})
    report = bench.collect("sums", "strong-responses", "--seats", SEATS)
    calls = [call for own in model_calls(bench.installation, report["collection"]).values() for call in own]
    show(rollouts=report["rollouts"], mean_reward=round(report["mean_reward"], 3), calls=len(calls))
    assert (report["rollouts"], report["completed"], report["failed"]) == (100, 100, 0)
    assert report["mean_reward"] > 0.9
    assert {call.tokens for call in calls} == {None}
    assert min(call.usage["input_tokens"] for call in calls) > 15
