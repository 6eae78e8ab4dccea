"""Chat Completions and Responses against a real server: calls, answers, tokens, limits, refusals."""

import asyncio
import json
import re

import pytest

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.environments.calculator.environment import CALCULATOR_TOOL, Calculator
from apps.gym.errors import PolicyError
from apps.gym.traces.items import function_calls, input_items, text_of
from apps.gym.wires.chat import chat_request, chat_tool
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.protocol import Ask
from scripts.tiny_policy.tasks import draw_rows
from tests.plain_policies import plain_policy
from tests.vllm.serving import Vllm

pytestmark = pytest.mark.slow
by_wire = pytest.mark.parametrize("wire", ["chat", "responses"])
ROW = draw_rows(1, seed=5, held_out=True)[0]
TOKENS = Dialect(asks_tokens=True)
COLD = {"temperature": 0.0}


def conversation(row=ROW):
    return input_items(row)


def ask(items, **sampling):
    return Ask(items=items, tools=[CALCULATOR_TOOL], sampling={**COLD, **sampling})


def test_the_server_is_registered_and_its_health_check_finds_all_that_it_has(strong: Vllm, bench) -> None:
    columns = "provider, wire, model_name, version, capture_tokens, health_checks, capabilities"
    [(*fields, checks, capabilities)] = bench.installation.rows(
        f"SELECT {columns} FROM policies_policymodel WHERE slug = 'strong'"
    )
    assert fields == ["vllm", "chat", "strong", "strong", 1]
    assert json.loads(capabilities)["max_model_len"] == 400
    assert json.loads(capabilities)["server_version"]
    found = {check["name"]: check for check in json.loads(checks)}
    # The check asks for a call of a tool that this model has never seen, so that may come or not.
    assert {name: found[name]["status"] for name in ("reachable", "model", "tokens", "latency")} == {
        "reachable": "ok",
        "model": "ok",
        "tokens": "ok",
        "latency": "ok",
    }
    assert {"'strong'", "400"} <= set(re.findall(r"'\w+'|\d+", found["model"]["message"]))
    assert re.match(r"\d+ prompt ids and \d+ reply ids", found["tokens"]["message"])


@by_wire
def test_conversations_of_calls_and_outputs_come_to_their_answers(strong: Vllm, wire, show) -> None:
    rows = draw_rows(20, seed=6, held_out=True)

    async def converse(row):
        items, finishes = conversation(row), []
        for _ in range(4):
            [reply] = await strong.ask(ask(items), wire=wire)
            finishes.append(reply.finish_reason)
            assert reply.usage["input_tokens"] > 15 and reply.usage["output_tokens"] > 3
            assert (reply.model, reply.retries) == ("strong", 0)
            items = items + reply.items
            calls = function_calls(reply.items)
            for call in calls:
                output = Calculator(row).call_tool(call["name"], json.loads(call["arguments"]))
                items.append({"type": "function_call_output", "call_id": call["call_id"], "output": output})
            if not calls:
                break
        return finishes, items[-1]

    async def all_at_once():
        return await asyncio.gather(*(converse(row) for row in rows))

    ended = asyncio.run(all_at_once())
    right = sum(row["expected_answer"] in text_of(last) for row, (_, last) in zip(rows, ended, strict=True))
    assert {tuple(finishes) for finishes, _ in ended} <= {
        ("tool_calls", "stop"),
        ("tool_calls", "tool_calls", "stop"),
        ("tool_calls", "tool_calls", "tool_calls", "stop"),
    }
    assert right >= 19
    show(wire=wire, conversations=len(rows), right=right)


def test_both_wires_show_the_model_the_same_prompt(strong: Vllm) -> None:
    [chat] = asyncio.run(strong.ask(ask(conversation()), wire="chat"))
    [responses] = asyncio.run(strong.ask(ask(conversation()), wire="responses"))
    assert chat.usage["input_tokens"] == responses.usage["input_tokens"]
    [call], [same] = function_calls(chat.items), function_calls(responses.items)
    assert (call["name"], json.loads(call["arguments"])) == (same["name"], json.loads(same["arguments"]))


def test_the_prompt_ids_equal_the_servers_tokenizer(strong: Vllm) -> None:
    [reply] = asyncio.run(strong.ask(ask(conversation()), wire="chat", dialect=TOKENS))
    assert reply.tokens is not None
    fields = reply.tokens.fields()
    messages = chat_request(ask(conversation()), model_name="strong")["messages"]
    tools = [chat_tool(CALCULATOR_TOOL)]
    asked = strong.post("/tokenize", {"messages": messages, "tools": tools}, at_root=True)
    assert fields["prompt_token_ids"] == asked["tokens"]
    said = strong.post("/detokenize", {"tokens": fields["generation_token_ids"]}, at_root=True)["prompt"]
    [call] = function_calls(reply.items)
    assert said.endswith("</tool_call><|im_end|>")
    assert json.loads(said.split("<tool_call>")[1].split("</tool_call>")[0]) == {
        "name": call["name"],
        "arguments": json.loads(call["arguments"]),
    }
    assert len(fields["generation_log_probs"]) == reply.usage["output_tokens"] == len(fields["generation_token_ids"])
    assert max(fields["generation_log_probs"]) <= 0.0


def test_a_streamed_reply_is_the_whole_one(strong: Vllm) -> None:
    streamed = Dialect(asks_tokens=True, extra_body={"stream": True, "stream_options": {"include_usage": True}})
    [whole] = asyncio.run(strong.ask(ask(conversation()), wire="chat", dialect=TOKENS))
    [joined] = asyncio.run(strong.ask(ask(conversation()), wire="chat", dialect=streamed))
    assert joined.tokens == whole.tokens is not None
    assert (joined.finish_reason, joined.usage["output_tokens"]) == (whole.finish_reason, whole.usage["output_tokens"])
    fresh = {"id", "call_id"}
    assert [{k: v for k, v in item.items() if k not in fresh} for item in joined.items] == [
        {k: v for k, v in item.items() if k not in fresh} for item in whole.items
    ]


@by_wire
def test_a_reply_that_is_cut_says_so(strong: Vllm, wire) -> None:
    [reply] = asyncio.run(strong.ask(ask(conversation(), max_output_tokens=3), wire=wire))
    assert (reply.finish_reason, reply.usage["output_tokens"]) == ("max_output_tokens", 3)


@by_wire
def test_a_conversation_that_outgrows_the_context_ends_as_context_length(strong: Vllm, wire) -> None:
    [first] = asyncio.run(strong.ask(ask(conversation()), wire=wire))
    [call] = function_calls(first.items)
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "7" * 400}
    [reply] = asyncio.run(strong.ask(ask([*conversation(), *first.items, output]), wire=wire))
    assert (reply.finish_reason, reply.items) == ("context_length", [])


@by_wire
def test_an_unknown_model_is_named_in_the_error(strong: Vllm, wire) -> None:
    async def ask_another() -> None:
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        try:
            policy = plain_policy(outbound, base_urls=[strong.base_url], model_name="weak", wire=wire)
            await policy.ask(ask(conversation()))
        finally:
            await outbound.close()

    with pytest.raises(PolicyError, match="404: The model `weak` does not exist"):
        asyncio.run(ask_another())
