import json

import pytest
from django.test import Client

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import Role
from apps.gym.serving.served_environment import cookie_name
from apps.rollouts.serving.hosting import HOST
from tests.factories import make_agent, make_environment, make_policy_model, make_user

pytestmark = pytest.mark.django_db
ROW = {
    "responses_create_params": {"input": [{"role": "user", "content": "What is (3 + 4) * 12? Box it."}]},
    "expected_answer": "84",
}
RESPONSE = {"output": [{"type": "message", "role": "assistant", "content": "\\boxed{84}"}]}


@pytest.fixture(autouse=True)
def _fresh_host():
    yield
    HOST.close()


def program(role: str = Role.ENGINEER) -> Client:
    _, token = create_api_key(user=make_user(role), name="program", scopes=["admin"])
    return Client(headers={"authorization": f"Bearer {token}"})


def post(client, path, body=None):
    return client.post(path, json.dumps(body or {}), content_type="application/json")


def test_an_environment_is_driven_with_an_api_key():
    make_environment(slug="sums", builtin="calculator")
    client = program()
    seeded = post(client, "/gym/environments/sums/seed_session", ROW)
    assert (seeded.status_code, seeded.json()) == (200, {"supports_explicit_close": True})
    cookie = seeded.cookies[cookie_name("sums")]
    assert (cookie["path"], cookie["httponly"]) == ("/gym/environments/sums/", True)
    assert post(client, "/gym/environments/sums/calculator", {"expression": "2+2"}).json() == {"result": 4}
    assert post(client, "/gym/environments/sums/verify", {**ROW, "response": RESPONSE}).json()["reward"] == 1.0
    assert client.get("/gym/environments/sums/reverify_mode").json() == "stateless"
    assert client.get("/gym/environments/sums/").json()["status"] == "ok"
    metrics = post(client, "/gym/environments/sums/aggregate_metrics", {"verify_responses": [{"reward": 1.0}]})
    assert metrics.json()["key_metrics"] == {"mean/reward": 1.0}


def test_an_agent_attempts_a_task_row():
    make_environment(slug="sums", builtin="calculator")
    make_agent(slug="plain")
    make_policy_model(slug="scripted", mistake_rate=0.0)
    reply = post(program(), "/gym/agents/plain/scripted/sums/run", ROW)
    assert (reply.status_code, reply.json()["reward"]) == (200, 1.0)


def test_a_model_answers_on_each_wire():
    make_policy_model(slug="scripted", mistake_rate=0.0)
    client = program()
    text = ROW["responses_create_params"]["input"][0]["content"]
    response = post(client, "/gym/models/scripted/v1/responses", {"input": text}).json()
    assert "84" in json.dumps(response["output"])
    messages = [{"role": "user", "content": text}]
    completion = post(client, "/gym/models/scripted/v1/chat/completions", {"messages": messages}).json()
    assert "84" in completion["choices"][0]["message"]["content"]
    given = {"model": "scripted", "max_tokens": 99, "messages": messages}
    said = post(client, "/gym/models/scripted/v1/messages?beta=true", given).json()
    assert (said["type"], "84" in said["content"][-1]["text"], said["stop_reason"]) == ("message", True, "end_turn")
    assert client.get("/gym/models/scripted/v1/models").json()["data"][0]["id"] == "scripted"


def test_a_changed_row_is_connected_anew():
    environment = make_environment(slug="sums", builtin="calculator")
    client = program()
    assert post(client, "/gym/environments/sums/seed_session", ROW).status_code == 200
    assert post(client, "/gym/environments/sums/calculator", {"expression": "1"}).status_code == 200
    environment.builtin = "exact_match"
    environment.save()
    assert "tool" not in client.get("/gym/environments/sums/openapi.json").json()["paths"]
    gone = post(client, "/gym/environments/sums/calculator", {"expression": "1"})
    assert (gone.status_code, gone.json()["detail"][:23]) == (400, "Session not initialized")


def test_strangers_and_viewers_are_kept_out():
    make_environment(slug="sums", builtin="calculator")
    path = "/gym/environments/sums/seed_session"
    assert post(Client(), path, ROW).status_code == 401
    assert post(program(Role.VIEWER), path, ROW).status_code == 403
    assert program(Role.VIEWER).get("/gym/environments/sums/reverify_mode").status_code == 200


def test_a_page_of_another_site_cannot_make_a_browser_do_it():
    make_environment(slug="sums", builtin="calculator")
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(make_user())
    assert post(browser, "/gym/environments/sums/seed_session", ROW).status_code == 403


def test_missing_and_unservable_objects_are_explained():
    make_environment(slug="people", verifies=False)
    client = program()
    assert client.get("/gym/environments/none/").status_code == 404
    refused = client.get("/gym/environments/people/")
    assert (refused.status_code, "has no verifier" in refused.json()["detail"]) == (409, True)
    assert post(client, "/gym/models/none/v1/responses").status_code == 404


def test_a_body_past_the_limit_is_refused(settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    make_environment(slug="sums", builtin="calculator")
    assert post(program(), "/gym/environments/sums/seed_session", ROW).status_code == 413


def test_the_host_ends_its_sessions_when_it_is_closed():
    make_environment(slug="sums", builtin="calculator")
    client = program()
    post(client, "/gym/environments/sums/seed_session", ROW)
    assert client.get("/gym/environments/sums/").json()["sessions"] == 1
    HOST.close()
    assert client.get("/gym/environments/sums/").json()["sessions"] == 0
