"""Exchanges recorded from a real vLLM server read as what they were."""

import orjson
import pytest
from openai.types.responses import Response

from apps.gym.traces.chat_turns import chat_messages
from apps.gym.traces.events import ModelCall, Prompt
from apps.gym.traces.items import text_of
from apps.gym.traces.responses import assemble_response
from apps.gym.wires.chat import chat_tool
from apps.gym.wires.chat_reply import ReplyMalformed, read_chat_reply
from apps.gym.wires.chat_stream import join_chat_stream
from apps.gym.wires.openai_http import _says_context_length, explain_refusal
from apps.gym.wires.responses_wire import read_responses_reply
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


def output_text(text, **fields):
    return {"type": "output_text", "text": text, "annotations": [], **fields}


def over_chat(reply_id, *, text="", calls=()):
    """The items that a chat reply becomes."""
    spoken = {"type": "message", "id": f"msg_{reply_id}", "role": "assistant", "status": "completed"}
    return [
        *([{**spoken, "content": [output_text(text)]}] if text else []),
        *(
            {
                "type": "function_call",
                "id": f"fc_{reply_id}_{number}",
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
                "status": "completed",
            }
            for number, (call_id, name, arguments) in enumerate(calls)
        ),
    ]


def over_responses(item_id, text):
    content = [output_text(text, logprobs=None)]
    return [
        {
            "id": item_id,
            "content": content,
            "role": "assistant",
            "status": "completed",
            "type": "message",
            "phase": None,
        }
    ]


def called_over_responses(item_id, call_id, arguments):
    return [
        {
            "arguments": arguments,
            "call_id": call_id,
            "name": "calculator",
            "type": "function_call",
            "id": item_id,
            "async": None,
            "caller": None,
            "namespace": None,
            "status": "completed",
        }
    ]


BABBLE = (
    "get\ufffdex\ufffddy\ufffd&\ufffd~\ufffd he\ufffd answst~Cairowindy</tool_call> windy mu-\u000bTeMa@\ufffd\ufffd"
    "itnowmp{\ufffd>%s\ufffdsnow\ufffdfunction age\ufffd\u0005function\u0018her\ufffd\u0013ute`\ufffdde\ufffdtools"
    "scri\tnb\ufffd\ufffd\ufffdFor\ufffd%s Tokyo\u000b"
)
"""What a model says that nobody trained."""
STRICT_ARGUMENTS = (
    '{"expression": ",pjsunny muchssionssionreAswpertieparameters\u013dPl8ptptme(or<js cloudy helpfulassistants'
    'u\u6470D/ful@[argRomeameters\u03ed8Oslocloudy return Madrid medescriptionsysteamet sunny\u014f+{"}'
)

EXPECTED = {
    "chat_plain": over_chat("chatcmpl-b02c8b06ec27720a", text=BABBLE % ("\ufffd", "Os")),
    "chat_tools_auto": over_chat("chatcmpl-a6443c2ffb5b66c1", text=BABBLE % ("|", "\u0017")),
    "chat_tools_named": over_chat(
        "chatcmpl-a66247b9ead23202", calls=[("chatcmpl-tool-96bf34a18d62342b", "calculator", '" {"')]
    ),
    "chat_tools_required_ids": over_chat(
        "chatcmpl-99871d2afc6e76b1", calls=[("chatcmpl-tool-9fc72e66393d9e59", "get_weather", '" {"')]
    ),
    "chat_tools_required_strict_enum": over_chat(
        "chatcmpl-b1c4d81ba4e3686b", calls=[("chatcmpl-tool-8c5f8bb8b2d38656", "calculator", '{"expression": "1+1"}')]
    ),
    "chat_trained_tool_call": over_chat(
        "chatcmpl-a77a4abc8d28ea15", calls=[("chatcmpl-tool-b9498b916379f7a8", "calculator", '{"expression": "37+45"}')]
    ),
    "chat_logprobs": over_chat("chatcmpl-8db5d5b9d4bc7356", text="get\ufffdex"),
    "chat_token_ids": over_chat("chatcmpl-9939b4c8de115d77", text="get\ufffdex"),
    "responses_plain": over_responses(
        "msg_9b8a2cab4860f187", "assistant\u001c{Comp\u0013\ufffdsunnyriring\ufffdq=exnow\u0005x"
    ),
    "responses_function_output": over_responses(
        "msg_a71bff0d3e61af0c", 'cal\ufffd\ufffdexprePlease{ro calculate\ufffd\ufffd{""}}, ofbjcloudy'
    ),
    "responses_token_ids": over_responses("msg_969ae352b931d814", "nna\u007ftant"),
    "responses_tools_required_strict": called_over_responses(
        "fc_9d4c31a2bcc9d255", "chatcmpl-tool-beddafa549890844", STRICT_ARGUMENTS
    ),
    "responses_trained_tool_call": called_over_responses(
        "fc_b7e07215a18a1114", "chatcmpl-tool-85fbf99895df2be2", '{"expression": "37+45"}'
    ),
}
NO_REPLIES = {"err_too_long_prompt", "err_unknown_model", "tokenize_chat"}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_items_of_a_recorded_reply_are_these(name):
    assert read(name).items == EXPECTED[name]


@pytest.mark.parametrize("name", [*EXPECTED, "responses_logprobs"])
def test_a_recorded_reply_makes_a_response_by_the_packages_types(name):
    reply = read(name)
    call = ModelCall(seen=0, items=reply.items, model=reply.model, response_id=reply.response_id, usage=reply.usage)
    given = assemble_response([Prompt(items=[]), call], {"responses_create_params": {"input": "x"}})
    parsed = Response.model_validate(given)
    assert [item.type for item in parsed.output] == [item["type"] for item in reply.items]
    assert (parsed.model, parsed.usage.output_tokens) == ("tiny", reply.usage["output_tokens"])
    said = "".join(text_of(item) for item in reply.items if item["type"] == "message")
    assert parsed.output_text == said


def test_logprobs_of_a_recorded_response_stay_on_its_text():
    (item,) = read("responses_logprobs").items
    (part,) = item["content"]
    assert (part["text"], [entry["token"] for entry in part["logprobs"]]) == (
        "\ufffdringametR",
        ["", "ring", "amet", "R"],
    )


def test_every_recorded_reply_is_written_out_here():
    recorded = {path.stem for path in SAMPLES.glob("*.json")}
    assert recorded == {*EXPECTED, "responses_logprobs"} | NO_REPLIES


def test_a_recorded_stream_is_the_reply_that_it_carries():
    streamed = (SAMPLES / "chat_stream_tools_required.sse.txt").read_bytes()
    reply = read_chat_reply(join_chat_stream(streamed), asked_tokens=True)
    assert reply.finish_reason == "tool_calls"
    assert (reply.usage["input_tokens"], reply.usage["output_tokens"]) == (191, 26)
    fields = reply.tokens.fields()
    assert (len(fields["prompt_token_ids"]), len(fields["generation_token_ids"])) == (191, 26)
    assert reply.items == over_chat(
        "chatcmpl-90503ae7e4d3d40b", calls=[("chatcmpl-tool-943a399fc5d39907", "get_weather", '" {"')]
    )


def test_a_stream_that_was_cut_is_no_reply():
    streamed = (SAMPLES / "chat_stream_tools_required.sse.txt").read_bytes()
    chunks = streamed.split(b"\n\n")
    with pytest.raises(ReplyMalformed, match="ended before its reply did"):
        join_chat_stream(b"\n\n".join(chunks[: len(chunks) // 2]))
    with pytest.raises(ReplyMalformed, match="is not JSON"):
        join_chat_stream(streamed[: len(streamed) // 2])


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
    too_long = explain_refusal(orjson.dumps(sample("err_too_long_prompt")["response"]))
    unknown = explain_refusal(orjson.dumps(sample("err_unknown_model")["response"]))
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
