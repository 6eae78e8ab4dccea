"""Exchanges recorded from a real vLLM server read as what they were."""

import orjson
import pytest

from apps.gym.policy.chat import chat_tool
from apps.gym.policy.chat_reply import read_chat_reply
from apps.gym.policy.chat_turns import chat_messages
from apps.gym.policy.http import _explain, _says_context_length
from apps.gym.policy.responses import read_responses_reply
from tests.gym.policy.shared_material import SHARED

SAMPLES = SHARED / "vllm_samples"
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no recorded vLLM exchanges beside the repository")


def sample(name):
    return orjson.loads((SAMPLES / f"{name}.json").read_bytes())


def read(name):
    recorded = sample(name)
    reader = read_chat_reply if "chat" in recorded["request"]["path"] else read_responses_reply
    return reader(orjson.dumps(recorded["response"]))


@pytest.mark.parametrize(
    ("name", "finish", "types"),
    [
        ("chat_plain", "max_output_tokens", ["message"]),
        ("chat_tools_auto", "max_output_tokens", ["message"]),
        ("chat_tools_named", "tool_calls", ["function_call"]),
        ("chat_tools_required_ids", "tool_calls", ["function_call"]),
        ("chat_tools_required_strict_enum", "tool_calls", ["function_call"]),
        ("chat_trained_tool_call", "tool_calls", ["function_call"]),
        ("chat_logprobs", "max_output_tokens", ["message"]),
        ("responses_plain", "max_output_tokens", ["message"]),
        ("responses_function_output", "max_output_tokens", ["message"]),
        ("responses_tools_required_strict", "tool_calls", ["function_call"]),
        ("responses_trained_tool_call", "tool_calls", ["function_call"]),
    ],
)
def test_a_recorded_reply_is_read(name, finish, types):
    got = read(name)
    assert (got.finish_reason, [item["type"] for item in got.items], got.model) == (finish, types, "tiny")
    assert got.usage["input_tokens"] > 0
    assert got.usage["output_tokens"] > 0


def test_both_wires_give_the_same_call():
    keys = ("type", "name", "arguments", "status")
    over_chat, over_responses = read("chat_trained_tool_call").items[0], read("responses_trained_tool_call").items[0]
    assert [over_chat[key] for key in keys] == [over_responses[key] for key in keys]
    assert over_chat["arguments"] == '{"expression": "37+45"}'


def test_token_ids_and_logprobs_are_as_many():
    tokens = read_chat_reply(orjson.dumps(sample("chat_token_ids")["response"]), asked_tokens=True).tokens
    fields = tokens.fields()
    assert fields["generation_token_ids"] == [374, 129, 350, 187]
    recorded = sample("chat_token_ids")["response"]["choices"][0]["logprobs"]["content"]
    assert fields["generation_log_probs"] == [entry["logprob"] for entry in recorded]
    assert fields["prompt_token_ids"][0] == 504
    # A server computes logprobs as float32, so nothing is lost in so many bytes.
    assert tokens.logprob_bytes == 4


def test_a_prompt_that_is_too_long_is_told_from_another_error():
    too_long = _explain(orjson.dumps(sample("err_too_long_prompt")["response"]))
    unknown = _explain(orjson.dumps(sample("err_unknown_model")["response"]))
    assert _says_context_length(*too_long)
    assert not _says_context_length(*unknown)
    assert unknown[0] == "The model `nope` does not exist. Valid aliases: tiny."


def test_recorded_tools_are_what_our_converter_sends():
    flat = sample("responses_trained_tool_call")["request"]["body"]["tools"]
    nested = sample("chat_trained_tool_call")["request"]["body"]["tools"]
    assert [chat_tool(tool) for tool in flat] == nested


def test_a_recorded_call_goes_back_as_it_came():
    recorded = sample("chat_trained_tool_call")["response"]["choices"][0]["message"]["tool_calls"]
    assert chat_messages(read("chat_trained_tool_call").items)[0]["tool_calls"] == recorded
