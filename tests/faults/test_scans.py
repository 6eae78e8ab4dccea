"""A scan whose workers are killed has one answer for every rollout, the right one, and counts each cost once."""

import json
import re
import time
from collections import Counter

import pytest

from apps.rollouts.scans.scan_jobs import IN_FLIGHT
from tests.faults.installation import Installation, size, wait_until
from tests.rollouts.judge_server import JudgeServer

pytestmark = pytest.mark.slow
ROLLOUTS = size(300, 5_000)
ANSWERED = "SELECT count(*) FROM rollouts_scananswer WHERE state = 'answered'"
LEASED = "SELECT count(*) FROM rollouts_scananswer WHERE state = 'pending' AND lease IS NOT NULL"
COST = (1_000 * 1.0 + 100 * 10.0) / 1e6
"""USD of one call of the judge server at the prices of scan_plan.py."""


def answer(transcript: str) -> dict[str, object]:
    found = re.search(r"Answer \d+: the tool failed", transcript)
    return {"answer": "yes", "citations": [{"event": 1, "quote": found[0]}]} if found else {"answer": "no"}


@pytest.mark.parametrize(("fixture", "workers"), [("embedded", 1), ("cluster", 2)])
def test_every_rollout_is_answered_once_though_workers_are_killed(
    fixture: str, workers: int, request: pytest.FixtureRequest, show
) -> None:
    installation: Installation = request.getfixturevalue(fixture)
    # Slow enough that a kill always finds calls in flight.
    with JudgeServer(answer, seconds=0.1).serving() as judge:
        plan = installation.start("plan", "tests/faults/scan_plan.py", judge.base_url, ROLLOUTS)
        assert plan.wait(120) == 0, plan.said
        began, in_flight = time.monotonic(), []
        for share in (0.1, 0.4, 0.7):
            programs = [installation.worker(seats=1) for _ in range(workers)]
            wait_until(
                # Between two batches, no call is in flight.
                lambda least=share * ROLLOUTS: (
                    installation.number(ANSWERED) >= least and installation.number(LEASED) > 0
                ),
                120,
                installation.tell,
            )
            for program in programs:
                program.kill()
            in_flight.append(installation.number(LEASED))
        assert min(in_flight) > 0, "they were killed while no call was in flight"
        worker = installation.worker(seats=1)
        completed = "SELECT count(*) FROM rollouts_scan WHERE state = 'completed'"
        wait_until(lambda: installation.number(completed) == 1, 150, installation.tell)
        assert installation.leave(worker) == [0]
    rows = installation.rows("SELECT rollout_id, state, answer, citations FROM rollouts_scananswer")
    assert (len(rows), len({row[0] for row in rows})) == (ROLLOUTS, ROLLOUTS)
    assert Counter(row[1:3] for row in rows) == {
        ("answered", "yes"): -(-ROLLOUTS // 3),
        ("answered", "no"): ROLLOUTS - -(-ROLLOUTS // 3),
    }
    first = min(row[0] for row in rows)
    for rollout, _, said, citations in rows:
        cited = json.loads(citations) if isinstance(citations, str) else citations
        place = rollout - first
        quotes = [f"Answer {place}: the tool failed"] if place % 3 == 0 else []
        assert (said == "yes", [each["quote"] for each in cited]) == (place % 3 == 0, quotes)
    counted = installation.rows("SELECT total, answered, failed, cost FROM rollouts_scan")
    assert counted == [(ROLLOUTS, ROLLOUTS, 0, pytest.approx(ROLLOUTS * COST))]
    asked = Counter(judge.asked)
    assert len(asked) == ROLLOUTS
    assert len(judge.asked) <= ROLLOUTS + sum(in_flight), "only what was in flight is asked about again"
    assert judge.most <= min(32, IN_FLIGHT)
    show(
        rollouts=ROLLOUTS,
        workers=workers,
        in_flight_when_killed=in_flight,
        asked_again=len(judge.asked) - ROLLOUTS,
        seconds=round(time.monotonic() - began, 1),
    )
