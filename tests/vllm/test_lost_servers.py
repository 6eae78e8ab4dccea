"""A model server that is killed while a collection runs, and started again."""

import json
import time

import pytest

from tests.faults.installation import wait_until
from tests.vllm.serving import Bench, Vllm
from tests.vllm.traces import model_calls

pytestmark = pytest.mark.slow
ROLLOUTS = 1_000


def test_no_rollout_is_lost_though_the_server_is_killed_amid_a_collection(bench: Bench, half: Vllm, show) -> None:
    installation = bench.installation
    words = ["--dataset", "sums", "--model", "half", "--repeats", ROLLOUTS // 100, "--seats", 16, "--json"]
    began = time.monotonic()
    command = installation.start("collect", "manage.py", "collect", *words)
    known = "SELECT coalesce(max(id), 0) FROM rollouts_collection WHERE state = 'running' AND completed >= 200"
    wait_until(lambda: installation.number(known) > 0, 180, installation.tell)
    collection = installation.number(known)
    assert half.kill() == 1
    assert half.program is not None
    assert "status -9" in half.program.said
    ended = installation.ended(collection)
    assert ended < ROLLOUTS, "it was killed when all was over"
    away = half.start()
    code = command.wait(400)
    seconds = time.monotonic() - began
    assert code == 0, command.said[-3000:]
    report = json.loads(next(line for line in command.said.splitlines() if line.startswith("{")))
    again = installation.number(
        f"SELECT count(*) FROM rollouts_rollout WHERE collection_id = {collection} AND attempt > 1"
    )
    calls = model_calls(installation, collection)
    retried_calls = sum(call.retries > 0 for own in calls.values() for call in own)
    show(
        rollouts=report["rollouts"],
        ended_before_the_kill=ended,
        server_away_s=round(away, 1),
        attempted_again=again,
        calls_tried_again=retried_calls,
        mean_reward=round(report["mean_reward"], 3),
        seconds=round(seconds, 1),
    )
    assert (report["rollouts"], report["completed"], report["failed"]) == (ROLLOUTS, ROLLOUTS, 0)
    assert 0.4 < report["mean_reward"] < 0.8
    # What ran when the server went was asked again, in the same attempt or in another.
    assert again + retried_calls > 0
    assert len(calls) == ROLLOUTS
    assert [rollout for rollout, own in calls.items() if any(call.tokens is None for call in own)] == []
