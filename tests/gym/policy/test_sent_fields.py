"""The sampling of a reply: the fields of the request that change the distribution, as they were sent."""

import orjson
import pytest

from apps.gym.sent_sampling import find_altered
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.protocol import Ask
from tests.gym.policy.test_http import ASK, CHAT_OK, RESPONSES_OK, Endpoint, ok

MESSAGES_OK = {
    "id": "m",
    "model": "m",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "4"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
WIRES = {"chat": CHAT_OK, "responses": RESPONSES_OK, "messages": MESSAGES_OK}


def send(wire, sampling, **dialect):
    """The body that the server got, and the sampling of the reply."""
    endpoint = Endpoint(ok(WIRES[wire]))
    reply = endpoint.ask(Ask(items=ASK.items, sampling=sampling), wire=wire, dialect=Dialect(**dialect))
    return endpoint.requests[0][2], reply.sampling


@pytest.mark.parametrize("wire", WIRES)
def test_fields_of_the_extra_body_are_in_the_sampling_where_the_request_has_none(wire):
    extra = {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "logit_bias": {"5": -100}, "priority": 3}
    body, sampling = send(wire, {"top_p": 0.8, "seed": 3}, extra_body=extra)
    assert (body["temperature"], body["top_p"], body["priority"]) == (0.7, 0.8, 3)
    assert sampling == {
        "seed": 3,
        "top_p": 0.8,
        "temperature": 0.7,
        "top_k": 20,
        "min_p": 0.05,
        "logit_bias": {"5": -100},
    }


@pytest.mark.parametrize("wire", WIRES)
def test_fields_of_the_extra_body_of_a_task_take_precedence(wire):
    extra = orjson.dumps({"top_k": 5, "repetition_penalty": 1.1}).decode()
    body, sampling = send(wire, {"temperature": 1.0, "top_k": 9, "metadata": {"extra_body": extra}})
    assert (body["top_k"], body["repetition_penalty"]) == (5, 1.1)
    assert (sampling["top_k"], sampling["repetition_penalty"], sampling["temperature"]) == (5, 1.1, 1.0)


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_with_the_wanted_sampling_has_no_other(wire):
    assert send(wire, {"temperature": 0.5, "top_k": 20, "top_p": None})[1] is None
    assert send(wire, {}, extra_body={"priority": 3, "top_p": None})[1] is None


def test_a_renamed_field_keeps_its_name():
    body, sampling = send("chat", {}, extra_body={"repetition_penalty": 1.2}, renamed={"repetition_penalty": "penalty"})
    assert (body["penalty"], sampling) == (1.2, {"repetition_penalty": 1.2})


def test_a_retry_has_the_fields_and_its_own_seed():
    endpoint = Endpoint((200, b"no reply", {}), ok())
    reply = endpoint.ask(dialect=Dialect(extra_body={"top_p": 0.9}))
    assert reply.sampling == {"seed": endpoint.requests[1][2]["seed"], "top_p": 0.9}
    assert reply.sampling["seed"] != ASK.sampling["seed"]


@pytest.mark.parametrize(
    ("sampling", "altered"),
    [
        ({}, []),
        ({"temperature": 0.7, "seed": 3, "max_output_tokens": 9, "stop": ["x"]}, []),
        ({"top_p": 1, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "frequency_penalty": 0}, []),
        ({"top_p": 1.0, "top_k": 0, "logit_bias": {}, "bad_words": [], "min_tokens": 0, "typical_p": 1}, []),
        ({"presence_penalty": None}, []),
        ({"logit_bias": [[5, -1]]}, None),
        ({"top_p": 0.9, "top_k": 50}, ["top_p", "top_k"]),
        ({"top_p": 0, "min_p": 0.05}, ["top_p", "min_p"]),
        ({"presence_penalty": -0.5, "frequency_penalty": 0.1, "repetition_penalty": 0.9}, None),
        ({"logit_bias": {"5": 0, "6": -1}, "allowed_token_ids": [1, 2], "bad_words": ["no"]}, None),
        ({"min_tokens": 4, "typical_p": 0.9, "mirostat": 2}, None),
        ({"do_sample": False}, ["do_sample"]),
    ],
)
def test_only_values_that_change_the_distribution_are_altered_sampling(sampling, altered):
    assert sorted(find_altered(sampling)) == sorted(sampling if altered is None else altered)
