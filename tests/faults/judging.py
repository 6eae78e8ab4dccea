"""What must hold of a collection when everything is over, whatever happened in between."""

from collections import Counter, defaultdict
from typing import Any

from tests.faults.installation import Installation

WORK = ("session", "prompt", *("model_call", "tool_result") * 2, "model_call", "verification")
"""The trace of the reference work: three calls of the model, two of tools, one verification."""


def judge(installation: Installation, collection: int) -> dict[str, Any]:
    """Figures of a collection, each rollout of which has ended exactly once; every rollout that completed has one whole
    trace, and only such have a reward."""
    mine = f"collection_id = {collection}"
    rows = installation.rows(
        "SELECT id, status, attempt, reward, error_kind, lost, lease, duration"
        f" FROM rollouts_rollout WHERE {mine} ORDER BY id"
    )
    statuses = Counter(row[1] for row in rows)
    assert set(statuses) <= {"completed", "failed"}, statuses
    assert [row for row in rows if row[6] is not None] == []
    counters = installation.rows(
        "SELECT total, completed, failed, cancelled, rewarded, reward_sum, state"
        f" FROM rollouts_collection WHERE id = {collection}"
    )
    rewards = [row[3] for row in rows if row[3] is not None]
    expected = (len(rows), statuses["completed"], statuses["failed"], 0, len(rewards), sum(rewards), "completed")
    assert counters == [expected]
    assert [row for row in rows if (row[3] is not None) != (row[1] == "completed")] == []
    assert [reward for reward in rewards if reward != 1.0] == [], "a fault became a reward"

    traces: dict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)
    for rollout, attempt, seq, kind in installation.rows(
        "SELECT rollout_id, attempt, seq, kind FROM rollouts_traceevent"
        f" WHERE rollout_id IN (SELECT id FROM rollouts_rollout WHERE {mine}) ORDER BY rollout_id, attempt, seq"
    ):
        traces[rollout, attempt].append((seq, kind))
    whole = list(enumerate(WORK))
    broken = {
        row[0]: traces[row[0], row[2]] for row in rows if row[1] == "completed" and traces[row[0], row[2]] != whole
    }
    assert broken == {}, "a completed attempt's trace has gaps, duplicates or more than one verification"
    attempts = {row[0]: row[2] for row in rows}
    stale = [key for key, trace in traces.items() if key[1] != attempts[key[0]] and trace[-1][1] == "verification"]
    return {
        "rollouts": len(rows),
        "completed": statuses["completed"],
        "failed": statuses["failed"],
        "kinds": dict(Counter(row[4] for row in rows if row[4])),
        "events": sum(map(len, traces.values())),
        "again": sum(row[2] > 1 for row in rows),
        "lost": sum(row[5] for row in rows),
        "max_attempt": max(row[2] for row in rows),
        "stale_ends_fenced": len(stale),
        "longest_s": round(max(row[7] for row in rows), 2),
    }
