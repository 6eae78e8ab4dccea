"""The measured mode of log probabilities, against a server whose distribution is known."""

import math

import pytest

from apps.policies.models import Health, PolicyModel
from apps.policies.policy_model_changes import save_policy_model
from tests.dashboard.pages import signed_in
from tests.factories import make_user
from tests.policies.test_probing import CHAT, TOKENS, check, message_of, server
from tests.rollouts.work import plan

pytestmark = pytest.mark.django_db
__all__ = ["server"]  # a fixture
LOGITS = {"cat": 3.0, "dog": 2.5, "owl": 1.0, "bee": 0.0, "ant": -4.0, "elk": -5.0}


def log_softmax(logits):
    whole = math.log(sum(map(math.exp, logits.values())))
    return {name: value - whole for name, value in logits.items()}


def raw(temperature):
    return log_softmax(LOGITS)


def processed(temperature):
    return log_softmax({name: value / temperature for name, value in LOGITS.items()})


def top_two(temperature):
    """After top_k = 2, vLLM sends its placeholder for the others."""
    kept = log_softmax({name: LOGITS[name] / temperature for name in ("cat", "dog")})
    return {**dict.fromkeys(LOGITS, -9999.0), **kept}


def certain(temperature):
    return log_softmax({"a": 40 / temperature, "b": 2 / temperature, "c": 0})


class Server:
    """Answers the questions of the health check; `scores` gives the log probabilities at a temperature."""

    def __init__(self, scores):
        self.scores, self.asked = scores, []

    def __call__(self, body):
        if body.get("top_logprobs") != 5:
            return {**CHAT, **TOKENS}
        self.asked.append(body)
        ranked = list(self.scores(body["temperature"]).items())[: body["top_logprobs"]]
        top = [{"token": token, "logprob": logprob} for token, logprob in ranked]
        choice = {"message": {"role": "assistant", "content": "cat"}, "finish_reason": "length"}
        return {"choices": [{**choice, "logprobs": {"content": [{**top[0], "top_logprobs": top}]}}]}


def measure(server, scores, **fields):
    """The check, the measured mode, and the model."""
    own = Server(scores)
    server.answers["/v1/chat/completions"] = 200, own
    stored = check(server, capture_tokens=True, **fields)
    [found] = [each for each in stored.health_checks if each["name"] == "logprob_mode"]
    assert stored.health == Health.HEALTHY
    assert [body["temperature"] for body in own.asked] == [1.0, 0.25]
    assert [(body["stream"], "stream_options" in body) for body in own.asked] == [(False, False)] * 2
    return found, stored.capabilities.get("logprob_mode"), stored


@pytest.mark.parametrize(
    ("scores", "mode"),
    [
        (raw, "raw_logprobs"),
        (processed, "processed_logprobs"),
        (top_two, "processed_logprobs"),
        (certain, "processed_logprobs"),
    ],
)
@pytest.mark.parametrize("setting", ["raw_logprobs", "processed_logprobs"])
def test_the_mode_is_measured_and_another_setting_is_a_warning(server, scores, mode, setting):
    found, measured, stored = measure(server, scores, logprob_mode=setting)
    assert (found["status"], measured) == ("ok" if mode == setting else "warning", mode)
    assert ("Change logprob_mode" in stored.health_message) is (mode != setting)
    assert stored.known_logprob_mode == mode


def test_an_extra_body_does_not_change_the_measurement(server):
    extra = {"temperature": 0.7, "stream": True, "stream_options": {"include_usage": True}, "top_logprobs": 1}
    with_extra = {"extra_body": extra, "logprob_mode": "processed_logprobs"}
    assert measure(server, processed, **with_extra)[1] == "processed_logprobs"


@pytest.mark.parametrize(
    "scores",
    [
        lambda temperature: dict.fromkeys(LOGITS, -2.0),  # equal
        lambda temperature: {name: value / temperature for name, value in LOGITS.items()},  # logits
        lambda temperature: {name: one / temperature**0.5 for name, one in raw(1).items()},  # another ratio
        lambda temperature: {"cat": -0.5} if temperature == 1 else {"dog": -0.5},
        lambda temperature: dict.fromkeys(LOGITS, "NaN"),
    ],
)
def test_numbers_that_fit_no_mode_leave_the_setting(server, scores):
    found, measured, stored = measure(server, scores, logprob_mode="processed_logprobs")
    assert (found["status"], measured, stored.known_logprob_mode) == ("not_applicable", None, "processed_logprobs")


def test_a_server_without_alternatives_is_not_measured_and_without_capture_none_is(server):
    server.answers["/v1/chat/completions"] = 200, {**CHAT, **TOKENS}
    stored = check(server, capture_tokens=True)
    assert "top_logprobs" in message_of(stored, "logprob_mode")
    assert stored.capabilities.get("logprob_mode") is None
    assert "logprob_mode" not in {each["name"] for each in check(server).health_checks}


def test_collections_state_the_measured_mode_until_the_setting_changes(server):
    _, _, stored = measure(server, processed)
    assert plan(model=stored, repeats=1).snapshot["policy_model"]["logprob_mode"] == "processed_logprobs"
    shown = signed_in().get(f"/api/v1/policy-models/{stored.slug}/").json()
    assert (shown["logprob_mode"], shown["capabilities"]["logprob_mode"]) == ("raw_logprobs", "processed_logprobs")
    stored.logprob_mode = "processed_logprobs"
    save_policy_model(policy_model=stored, api_key=None, user=make_user())
    again = PolicyModel.objects.get(pk=stored.pk)
    assert (again.capabilities, again.health, again.known_logprob_mode) == ({}, Health.UNKNOWN, "processed_logprobs")


def test_the_page_of_the_model_says_that_the_mode_was_measured(server):
    _, _, stored = measure(server, processed)
    assert "processed (measured)" in signed_in().get(f"/models/{stored.slug}/").text
