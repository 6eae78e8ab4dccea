"""Trying a model over the API."""

import json

import pytest

from tests.factories import make_policy_model

pytestmark = pytest.mark.django_db

URL = "/api/v1/policy-models/scripted-one/try/"


@pytest.fixture(autouse=True)
def model():
    return make_policy_model(slug="scripted-one", mistake_rate=0.0, version="rules-7")


def send(client, **body):
    return client.post(URL, json.dumps(body), content_type="application/json")


def test_the_reply_is_a_trace(engineer):
    answer = send(engineer, prompt="What is 2 + 2?", sampling={"temperature": 0.5}).json()
    assert [(event["seq"], event["kind"]) for event in answer["events"]] == [(0, "prompt"), (1, "model_call")]
    assert answer["events"][0]["event"]["items"][-1]["content"] == "What is 2 + 2?"
    call = answer["events"][1]["event"]
    assert (call["version"], call["sampling"], call["seen"]) == ("rules-7", {"temperature": 0.5}, 1)
    assert (answer["captured_tokens"], answer["cost"]) == (None, 0.0)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/prompt"),
        ({"prompt": ""}, "/prompt"),
        ({"prompt": "1?", "tools": [{"name": "a b"}]}, "/tools"),
        ({"prompt": "1?", "tools": "[]"}, "/tools"),
        ({"prompt": "1?", "sampling": {"top_p": 7}}, "/sampling"),
        ({"prompt": "1?", "sampling": {"x": "\ud800"}}, "/sampling/x"),
        ({"prompt": "\ud800"}, "/prompt"),
        ({"prompt": "1?", "tol": []}, "/tol"),
    ],
)
def test_errors_are_named(engineer, body, pointer):
    answer = send(engineer, **body)
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (400, [pointer])


def test_who_may_not_change_models_may_not_spend_on_them(viewer):
    assert send(viewer, prompt="1?").status_code == 403
