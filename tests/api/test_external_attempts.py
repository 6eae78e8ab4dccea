"""Commands to attempts of external agents that do not exist or have ended."""

import pytest

from tests.api.conftest import client_of
from tests.factories import make_agent, make_collection, make_rollout

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("rollout", [1, 10**9, 36579882409584566272])
@pytest.mark.parametrize("command", ["finish", "fail", "extend"])
def test_an_unknown_attempt_has_ended(rollout: int, command: str):
    body = {"attempt": 1, **({"message": "lost"} if command == "fail" else {})}
    path = f"/api/v1/attempts/{rollout}/{command}/"
    reply = client_of("engineer").post(path, body, content_type="application/json")
    assert (reply.status_code, reply.json()["type"]) == (409, "urn:gymweb:problem:attempt-ended")


def test_a_rollout_of_the_built_in_loop_takes_no_command():
    rollout = make_rollout(make_collection(), status="completed", reward=1.0, stop_reason="answered")
    path = f"/api/v1/attempts/{rollout.pk}/finish/"
    reply = client_of("engineer").post(path, {"attempt": 1}, content_type="application/json")
    assert reply.status_code == 409


@pytest.mark.parametrize(
    ("kind", "label"), [("builtin", "Built-in loop"), ("command", "Command"), ("agent_server", "Agent server")]
)
def test_only_external_agents_take_attempts(kind: str, label: str):
    collection = make_collection(agent=make_agent(kind=kind, slug="mine"))
    running = {"status": "running", "lease": 1, "reward": None, "stop_reason": "", "finished_at": None}
    rollout = make_rollout(collection, **running)
    client = client_of("engineer")
    requests = [("attempts/", {"collection": collection.pk}), (f"attempts/{rollout.pk}/finish/", {"attempt": 1})]
    for path, body in requests:
        headers = {"Idempotency-Key": f"{kind}-{path}"}
        reply = client.post(f"/api/v1/{path}", body, content_type="application/json", headers=headers)
        assert (reply.status_code, reply.json()["type"]) == (409, "urn:gymweb:problem:not-claimable")
        assert f"the agent mine themselves (kind: {label})" in reply.json()["detail"]
