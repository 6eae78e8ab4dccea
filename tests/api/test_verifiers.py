import pytest
from jsonschema import Draft202012Validator

from apps.environments.models import Environment
from apps.gym.verifiers.registry import VERIFIERS, asks_judge
from tests.factories import make_environment

pytestmark = pytest.mark.django_db


def test_every_verifier_is_listed_with_a_schema_and_its_formula(engineer):
    reply = engineer.get("/api/v1/verifiers/")
    assert [one["type"] for one in reply.json()] == list(VERIFIERS)
    for one in reply.json():
        Draft202012Validator.check_schema(one["parameters"])
        assert "Range: " in one["description"]


def attempt(engineer, **body):
    return engineer.post("/api/v1/verifiers/try/", body, content_type="application/json")


def test_a_verifier_is_tried_on_a_reply(engineer):
    reply = attempt(engineer, verifier={"type": "numeric"}, row={"expected_answer": 42}, reply="It is 42.")
    assert reply.status_code == 200
    given = reply.json()
    assert given.pop("seconds") >= 0
    assert given == {
        "reward": 1.0,
        "components": {"numeric_correctness": 1.0},
        "explanation": 'answer "It is 42." equals expected 42',
        "details": {"extracted_answer": "It is 42.", "expected_answer": "42"},
        "error": "",
    }


def test_a_verifier_is_tried_on_the_items_of_an_attempt(engineer):
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    row = {"expected_answers": [{"name": "f", "arguments": {}}]}
    assert attempt(engineer, verifier={"type": "tool_calls"}, row=row, output=[call]).json()["reward"] == 1.0


def test_a_failing_verifier_gives_an_error_and_no_reward(engineer):
    given = attempt(engineer, verifier={"type": "numeric"}, reply="42").json()
    assert (given["reward"], given["error"]) == (
        None,
        "the task row has no `expected_answer`, which this verifier needs",
    )


@pytest.mark.parametrize(
    "reply",
    [
        '{"a": 1e999}',
        '{"a": -1e999}',
        '{"a": 100000000000000000000000}',
        '{"a": "\\ud800"}',
        '{"\\ud800": 1}',
        '{"a": ' + "[" * 400 + "]" * 400 + "}",
    ],
)
@pytest.mark.parametrize(
    "verifier", [{"type": "final_state", "exact": True}, {"type": "json_schema", "schema": {"not": {}}}]
)
def test_whatever_json_a_reply_holds_it_is_wrong_and_no_error(engineer, verifier, reply):
    tried = attempt(engineer, verifier=verifier, row={"expected_state": {"a": 1}}, reply=reply)
    assert tried.status_code == 200
    assert (tried.json()["reward"], tried.json()["error"]) == (0.0, "")


@pytest.mark.parametrize("field", ["row", "verifier", "output"])
def test_a_number_beyond_all_numbers_is_refused_or_answered(engineer, field):
    given = {
        "row": '{"verifier": {"type": "final_state"}, "row": {"expected_state": 1e999}, "reply": "{}"}',
        "verifier": '{"verifier": {"type": "numeric", "expected": 1e999}, "row": {}, "reply": "1"}',
        "output": '{"verifier": {"type": "efficiency", "steps": 1}, "row": {}, "output": [{"type": "x", "a": 1e999}]}',
    }[field]
    reply = engineer.post("/api/v1/verifiers/try/", given, content_type="application/json")
    assert reply.status_code in (200, 400)


def test_a_verifier_that_hangs_is_stopped_while_it_is_tried(engineer):
    hangs = {"type": "regex", "wanted": ["^(a|a)+$"], "time_limit": 0.3}
    given = attempt(engineer, verifier=hangs, reply="a" * 60 + "b").json()
    assert (given["reward"], given["error"]) == (None, "Regular expressions: stopped after 0.3 s without a result")


@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
        ({}, "verifier", "required"),
        ({"verifier": {"type": "numeric", "absolute_tolerance": -1}}, "verifier", "/absolute_tolerance is -1: give"),
        ({"verifier": {"type": "llm_judge"}}, "verifier", "asked only in a collection"),
        ({"verifier": {"type": "numeric"}, "reply": "x" * 200_001}, "reply", "at most 200,000"),
        ({"verifier": {"type": "numeric"}, "output": ["x"]}, "output", "dictionary"),
    ],
)
def test_an_impossible_trial_gives_the_reason(engineer, body, field, told):
    reply = attempt(engineer, **body)
    assert reply.status_code == 400
    [problem] = reply.json()["errors"]
    assert problem["pointer"].startswith(f"/{field}")
    assert told in problem["message"]


def test_an_environment_gets_a_verifier_and_a_wrong_one_is_refused_with_its_pointer(engineer):
    body = {"slug": "sums", "name": "Sums", "adapter": "declared", "verifier": {"type": "numeric"}}
    reply = engineer.post("/api/v1/environments/", body, content_type="application/json")
    assert (reply.status_code, reply.json()["verifier"]) == (201, {"type": "numeric"})
    wrong = {"verifier": {"type": "numeric", "absolute_tolerance": "much"}}
    reply = engineer.patch("/api/v1/environments/sums/", wrong, content_type="application/json")
    assert reply.status_code == 400
    [problem] = reply.json()["errors"]
    assert problem["pointer"] == "/verifier/absolute_tolerance"
    assert ('"much"' in problem["message"], "0 or more" in problem["message"]) == (True, True)
    assert Environment.objects.get(slug="sums").verifier == {"type": "numeric"}


def test_a_verifier_is_taken_away_by_an_empty_one(engineer):
    environment = make_environment(verifier={"type": "numeric"})
    reply = engineer.patch(
        f"/api/v1/environments/{environment.slug}/", {"verifier": {}}, content_type="application/json"
    )
    assert (reply.status_code, reply.json()["verifier"]) == (200, {})


def test_each_verifier_comes_with_an_example_that_has_full_marks(engineer):
    rewards = {}
    for one in engineer.get("/api/v1/verifiers/").json():
        if not asks_judge({"type": one["type"]}):
            rewards[one["type"]] = attempt(engineer, **one["example"]).json()["reward"]
    judged = {"llm_judge", "reward_model"}
    assert rewards == {kind: 3.0 if kind == "tool_call_form" else 1.0 for kind in VERIFIERS if kind not in judged}
