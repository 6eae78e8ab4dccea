"""Manual attempts and verifier cases, over the API."""

import json

import pytest

from tests.factories import make_environment

pytestmark = pytest.mark.django_db
URL = "/api/v1/environments/sums/"
ROW = {"responses_create_params": {"input": "What is 6 * 7?"}, "expected_answer": "42"}
CALL = {"calls": [{"name": "calculator", "arguments": {"expression": "6 * 7"}}]}


@pytest.fixture(autouse=True)
def environment():
    return make_environment(slug="sums", builtin="calculator")


def send(client, action, **body):
    return client.post(f"{URL}{action}/", json.dumps(body), content_type="application/json")


def test_an_attempt_is_played_and_verified(engineer):
    answer = send(engineer, "try", row=ROW, moves=[CALL, {"text": "\\boxed{42}"}], verify=True).json()
    assert [event["kind"] for event in answer["events"]] == [
        "session",
        "prompt",
        "model_call",
        "tool_result",
        "model_call",
        "verification",
    ]
    assert (answer["reward"], answer["error"], answer["error_kind"]) == (1.0, "", "")
    seeded = send(engineer, "try", row=ROW).json()
    assert (len(seeded["events"]), seeded["reward"]) == (2, None)
    failed = send(engineer, "try", row={"x": 1}, moves=[{"text": "42"}], verify=True).json()
    assert (failed["reward"], failed["error_kind"]) == (None, "verifier_error")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/row"),
        ({"row": ROW, "moves": [{"calls": [{}]}]}, "/moves/0/calls/0/name"),
        ({"row": ROW, "moves": [{"say": "x"}]}, "/moves/0/say"),
        ({"row": ROW, "seed": -1}, "/seed"),
        ({"row": ROW, "verify": True}, "/moves"),
        ({"row": {"responses_create_params": {"input": 3}}}, "/row"),
        ({"row": ROW, "more": 1}, "/more"),
    ],
)
def test_errors_are_named(engineer, body, pointer):
    answer = send(engineer, "try", **body)
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (400, [pointer])


def test_cases_are_run(engineer):
    answer = send(engineer, "run_cases").json()
    assert answer["passed"] is True
    assert {case["kind"] for case in answer["cases"]} == {"full reward", "zero reward", "malformed", "determinism"}
    assert {case["name"]: case["rewards"] for case in answer["cases"]}["one off"] == [0.0]
    make_environment(slug="plain", adapter="declared", builtin="")
    refused = engineer.post("/api/v1/environments/plain/run_cases/")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gymweb:problem:cases-not-run")


def test_who_may_not_configure_may_not_play(viewer):
    assert send(viewer, "try", row=ROW).status_code == 403
    assert send(viewer, "run_cases").status_code == 403
