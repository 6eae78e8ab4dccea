"""A collection whose rollouts always fail at one party, planned before a good collection of the same party.

The good one ends in at most 1.5 times the time that it needs alone. Rollouts that fail at their verification or judge,
which is their end, hold their seats as long as good ones until then: there it is 2 times. Poisoned rollouts end with
their own error kind.
"""

from collections.abc import Callable

import pytest

from tests.faults.installation import Installation, size

pytestmark = pytest.mark.slow

SEATS = 24
GOOD = 144
PARTIES = {
    "model": ("model_500", "policy_error", "500"),
    "judge": ("model_500", "judge_error", "500"),
    "session": ("seed_500", "environment_error", "no session today"),
    "verification": ("verify_500", "verifier_error", "500"),
    "agent": ("run_500", "agent_error", "no agent today"),
}
"""By party: the fault of its tasks, the error kind of their rollouts, and what the message quotes."""


def rows_of(cluster: Installation, party: str) -> dict[str, dict[str, dict[str, object]]]:
    """Start the servers. Return the models and environments for the plan."""
    fails = ("--fail-on", "model_500")
    latency = ("--latency-ms", 400)
    _, tools = cluster.tools("--verify-ms", 100)
    environment: dict[str, object] = {"base_url": tools, "max_tries": 3}
    models = {"mock": {"base_url": cluster.model(*latency, *(fails if party == "model" else ())), "max_tries": 3}}
    if party == "judge":
        verdict = ("--verdict", '{"score": 1}', "--latency-ms", 100)
        models["mock"]["base_url"] = cluster.model(*latency, "--tool-calls", 0)
        models["judge"] = {"base_url": cluster.model(*verdict, *fails), "max_tries": 3}
        rubric = "Does the answer name a temperature?"
        environment = {"adapter": "builtin", "builtin": "judged", "judge_model": "judge", "judge_rubric": rubric}
    agent: dict[str, object] = {"kind": "builtin"}
    if party == "agent":
        _, port = cluster.serve("--no-worker")
        models["mock"]["base_url"] = cluster.model(*latency, "--tool-calls", 0)
        _, server = cluster.tools("--gymweb", f"http://127.0.0.1:{port}")
        agent = {"kind": "agent_server", "server_url": server, "server_route": "run"}
    return {"models": models, "environments": {"weather": environment}, "agents": {"runs": agent}}


@pytest.mark.parametrize("party", PARTIES)
def test_a_good_collection_behind_a_poisoned_one(cluster: Installation, show: Callable[..., None], party: str) -> None:
    fault, kind, quoted = PARTIES[party]
    poisoned = size(60, 300)
    served = {"model": "mock", "environment": "weather", "agent": "runs", "max_attempts": 2}
    good = {"faults": [""] * GOOD, **served}
    cluster.plan(**rows_of(cluster, party))
    worker = cluster.worker(SEATS)

    def seconds_of(collection: int) -> float:
        """From the plan to the last end."""
        cluster.wait_finished(collection, seconds=90)
        ended = cluster.rows(f"SELECT completed, failed FROM rollouts_collection WHERE id = {collection}")
        assert ended == [(GOOD, 0)]
        milliseconds = cluster.number(
            "SELECT 1000 * extract(epoch FROM max(r.finished_at) - min(c.created_at)) FROM rollouts_rollout r"
            f" JOIN rollouts_collection c ON c.id = r.collection_id WHERE c.id = {collection}"
        )
        return milliseconds / 1000

    warm = cluster.plan(collections={"warm": {**good, "faults": [""] * SEATS}})["warm"]
    cluster.wait_finished(warm, seconds=30)
    alone = seconds_of(cluster.plan(collections={"alone": good})["alone"])
    planned = cluster.plan(collections={"bad": {**served, "faults": [fault] * poisoned}, "beside": good})
    beside = seconds_of(planned["beside"])
    show(party=party, poisoned=poisoned, alone=round(alone, 1), beside=round(beside, 1))
    assert beside <= (2 if party in {"judge", "verification"} else 1.5) * alone
    # The party answers others, so that the poisoned rollouts need not wait for it.
    cluster.plan(collections={"more": {**good, "faults": [""] * size(400, 2_000), "concurrency": SEATS // 3}})
    cluster.wait_finished(planned["bad"], seconds=60)
    ends = cluster.rows(
        "SELECT status, error_kind, reward, count(*) FROM rollouts_rollout"
        f" WHERE collection_id = {planned['bad']} GROUP BY 1, 2, 3"
    )
    assert ends == [("failed", kind, None, poisoned)]
    messages = cluster.rows(f"SELECT error_message FROM rollouts_rollout WHERE collection_id = {planned['bad']}")
    assert all(quoted in message for (message,) in messages)
    assert cluster.leave(worker) == [0]
