"""What the health check warns of: servers that are set up wrongly, and right ones beside them."""

import itertools

import pytest

from apps.policies.models import Health
from apps.policies.secrets import encrypt_secret
from tests.policies.test_probing import CHAT, KEY, check, message_of, server

pytestmark = pytest.mark.django_db
__all__ = ["server"]  # a fixture
WORDS = "river lamp quiet seven basil orbit"


def chat(text=None, *, finish="stop", tokens=6, **message):
    choice = {"message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 9, "completion_tokens": tokens}
    return {"id": "c", "model": "qwen3", "choices": [choice], "usage": usage}


class Model:
    """A model that answers well, except for the questions in `wrong`: auto_call, text or token_limit."""

    def __init__(self, **wrong):
        self.wrong, self.numbers = wrong, itertools.count()

    def __call__(self, body):
        if "tools" in body:
            is_auto = body["tool_choice"] == "auto"
            return self.wrong.get("auto_call", CHAT) if is_auto else CHAT
        if (body.get("max_completion_tokens") or body.get("max_tokens")) == 16:
            return self.wrong.get("token_limit", chat("one two", finish="length", tokens=16))
        return self.wrong.get("text", chat(f"{WORDS} {next(self.numbers)}"))


def warnings(server, **wrong):
    server.answers["/v1/chat/completions"] = 200, Model(**wrong)
    stored = check(server)
    # Warnings never make a model unhealthy.
    assert stored.health == Health.HEALTHY
    found = [each["name"] for each in stored.health_checks if each["status"] == "warning"]
    assert stored.health_message.count("Warning:") == len(found)
    return found, stored


def test_a_server_that_is_set_up_well_gives_no_warning(server):
    found, stored = warnings(server)
    assert found == []
    assert [each["status"] for each in stored.health_checks[-4:]] == ["ok"] * 4
    asked = [body for _, _, body in server.of_setup]
    samples = [body for body in asked if "seed" in body]
    assert sorted((body["temperature"], body["seed"]) for body in samples) == [(1.0, 1), (1.0, 2)]
    assert [body["max_completion_tokens"] for body in asked if body["max_completion_tokens"] < 512] == [16]


CALL = '<tool_call>{"name": "report_color", "arguments": {"color": "blue"}}</tool_call>'


def test_a_call_that_stays_text_is_a_warning(server):
    found, stored = warnings(server, auto_call=chat(CALL))
    assert found == ["auto_call"]
    assert "--tool-call-parser" in message_of(stored, "auto_call")
    # A model may answer without the tool.
    assert warnings(server, auto_call=chat("It is blue."))[0] == []


def test_an_answer_in_the_reasoning_or_with_tags_is_a_warning(server):
    numbers = itertools.count()
    found, stored = warnings(server, text=chat(None, reasoning_content=WORDS))
    assert found == ["text", "sampling"]
    assert "reasoning parser" in message_of(stored, "text")
    assert warnings(server, text=chat("<think>Hm.</think>" + WORDS))[0] == ["text", "sampling"]
    assert warnings(server, text=chat(str(next(numbers)), reasoning_content=WORDS))[0] == ["sampling"]


def test_equal_samples_at_temperature_1_are_a_warning(server):
    found, stored = warnings(server, text=chat(WORDS))
    assert found == ["sampling"]
    assert "temperature" in message_of(stored, "sampling")
    # Too short to vary.
    assert warnings(server, text=chat("blue"))[0] == []


def test_a_token_limit_that_is_ignored_or_a_cut_reported_as_complete_is_a_warning(server):
    assert warnings(server, token_limit=chat("one two", tokens=20))[0] == ["token_limit"]
    assert warnings(server, token_limit=chat("one two", tokens=16))[0] == ["token_limit"]
    # A model may stop before the limit.
    assert warnings(server, token_limit=chat("one", tokens=3))[0] == []


@pytest.mark.parametrize(("wire", "provider"), [("responses", "compatible"), ("messages", "anthropic")])
def test_other_wires_are_asked_the_same(server, wire, provider):
    stored = check(server, wire=wire, provider=provider, api_key_encrypted=encrypt_secret(KEY))
    assert [each["status"] for each in stored.health_checks[-4:]] == ["ok"] * 4
    assert len(server.of_setup) == 4


def test_an_endpoint_without_an_answer_is_not_asked_again(server):
    server.answers["/v1/chat/completions"] = 500, {}
    stored = check(server)
    assert (server.of_setup, len(stored.health_checks)) == ([], 6)


def test_a_question_that_fails_is_no_warning(server):
    server.answers["/v1/chat/completions"] = 200, lambda body: CHAT if "tools" in body else {"error": "no"}
    stored = check(server)
    assert stored.health == Health.HEALTHY
    assert [each["status"] for each in stored.health_checks[-4:]] == ["ok", *["not_applicable"] * 3]
