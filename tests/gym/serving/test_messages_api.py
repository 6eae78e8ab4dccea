"""The Messages API of a served model, with the real `anthropic` package at a real port."""

import asyncio
import json
import re

import anthropic
import pytest

from apps.gym.calls.retries import Pauses
from apps.gym.errors import PolicyError, TimedOut
from apps.gym.loop.agent_loop import Harness
from apps.gym.resources.inprocess import InProcessServer
from apps.gym.serving.served_agent import ServedAgent
from apps.gym.serving.served_model import ServedModel
from apps.gym.serving.served_request import IncomingRequest, answer_always
from apps.gym.traces.items import message
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.messages_content import REDACTED
from apps.gym.wires.protocol import Ask, Reply
from apps.gym.wires.scripted import ScriptedPolicy
from tests.gym.serving.ports import on_a_port
from tests.plain_policies import plain_policy

QUESTION = "What is (3 + 4) * 12? Box it."
SCHEMA = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
TOOL = {"name": "calculator", "description": "Evaluates", "input_schema": SCHEMA}
ARGUMENTS = '{ "expression" : "(3 + 4) * 12", "digits": 1.50 }'
SIGNED = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Multiply… ✓"}],
    "signature": "EqQBCkYIBxgC/+==",
}
HIDDEN = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "EmwKAhgB/+==", "format": REDACTED}
SAID = {
    "type": "message",
    "id": "msg_a",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Let me\n compute “it”.", "annotations": []}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "toolu_01A",
    "name": "calculator",
    "arguments": ARGUMENTS,
    "status": "completed",
}
USAGE = {"input_tokens": 125, "cached_tokens": 100, "output_tokens": 40, "reasoning_tokens": 9}
FULL = Reply(
    items=[SIGNED, HIDDEN, SAID, CALL], finish_reason="tool_calls", model="m", response_id="msg_01X", usage=USAGE
)


class Recording:
    """A policy that keeps what it was asked, and answers what it was given."""

    def __init__(self, reply=FULL):
        self.asks = []
        self.reply = reply

    async def ask(self, ask):
        self.asks.append(ask)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def with_client(work, policy=None, **served):
    """What `work(client)` gives, with the package's client at a real port."""

    async def run():
        model = ServedModel(name="ours", policy=policy or ScriptedPolicy(), **{"sampling": {}, **served})
        async with on_a_port(model) as (port, _):
            client = anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{port}", api_key="none", max_retries=0)
            async with client:
                return await work(client)

    return asyncio.run(run())


async def create(client, stream, **given):
    given = {"model": "ours", "max_tokens": 99, "messages": [{"role": "user", "content": QUESTION}], **given}
    if not stream:
        return await client.messages.create(**given)
    async with client.messages.stream(**given) as events:
        return await events.get_final_message()


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_comes_through_unchanged(stream):
    got = with_client(lambda client: create(client, stream), Recording())
    thought, hidden, said, call = got.content
    assert (thought.thinking, thought.signature) == ("Multiply… ✓", "EqQBCkYIBxgC/+==")
    assert (hidden.type, hidden.data) == ("redacted_thinking", "EmwKAhgB/+==")
    assert said.text == "Let me\n compute “it”."
    assert (call.id, call.name, call.input) == ("toolu_01A", "calculator", json.loads(ARGUMENTS))
    assert (got.id, got.model, got.role, got.stop_reason) == ("msg_01X", "m", "assistant", "tool_use")
    usage = got.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (25, 100, 40)


def test_a_stream_has_the_arguments_in_the_models_own_characters():
    async def work(client):
        given = {"model": "ours", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        stream = await client.messages.create(**given, stream=True)
        return [event async for event in stream]

    events = with_client(work, Recording())
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    assert "".join(delta.partial_json for delta in deltas if delta.type == "input_json_delta") == ARGUMENTS
    assert (events[0].type, events[-1].type) == ("message_start", "message_stop")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("call_id", ["toolu_01A", "functions.find:0"])
def test_what_the_client_sends_back_are_the_items_of_the_reply(stream, call_id):
    items = [SIGNED, HIDDEN, SAID, {**CALL, "call_id": call_id}]
    policy = Recording(Reply(items=items, finish_reason="tool_calls", model="m", response_id="msg_01X", usage=USAGE))

    async def work(client):
        opening = [{"role": "user", "content": QUESTION}]
        got = await create(client, stream)
        assert re.fullmatch("[a-zA-Z0-9_-]+", got.content[-1].id)
        result = {"type": "tool_result", "tool_use_id": got.content[-1].id, "content": "84", "is_error": True}
        spoken = [
            *opening,
            {"role": "assistant", "content": got.content},
            {"role": "user", "content": [result, {"type": "text", "text": "Box it."}]},
        ]
        await create(client, stream, messages=spoken, system="Be brief.", tools=[TOOL])

    with_client(work, policy)
    system, question, thought, hidden, said, call, output, box = policy.asks[1].items
    without_id = [{key: value for key, value in item.items() if key != "id"} for item in (thought, hidden, said)]
    assert without_id == [{key: value for key, value in item.items() if key != "id"} for item in (SIGNED, HIDDEN, SAID)]
    assert (call["call_id"], json.loads(call["arguments"])) == (call_id, json.loads(ARGUMENTS))
    assert output == {
        "type": "function_call_output",
        "call_id": call_id,
        "output": "84",
        "status": "incomplete",
    }
    assert [item["content"] for item in (system, question, box)] == ["Be brief.", QUESTION, "Box it."]
    assert policy.asks[1].tools == [
        {"type": "function", "name": "calculator", "description": "Evaluates", "parameters": SCHEMA}
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("call_id", ["call_1", "functions.find:0"])
def test_calls_of_a_reply_that_share_an_id_have_their_own_for_the_client(stream, call_id):
    calls = [{**CALL, "call_id": call_id, "arguments": f'{{"expression":"{n}"}}'} for n in range(3)]
    policy = Recording(Reply(items=calls, finish_reason="tool_calls", model="m", response_id="msg_01X", usage=USAGE))

    async def work(client):
        got = await create(client, stream)
        ids = [block.id for block in got.content]
        assert len({one for one in ids if re.fullmatch("[a-zA-Z0-9_-]+", one)}) == 3
        results = [{"type": "tool_result", "tool_use_id": one, "content": str(n)} for n, one in enumerate(ids)]
        spoken = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": got.content}]
        # Agents may send results in any order.
        await create(client, stream, messages=[*spoken, {"role": "user", "content": results[::-1]}])

    with_client(work, policy)
    history = policy.asks[1].items[-6:]
    assert [item["call_id"] for item in history] == [call_id] * 6
    assert [item.get("output") for item in history[3:]] == ["0", "1", "2"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_scripted_model_solves_a_task_over_the_messages_api(stream):
    async def work(client):
        messages = [{"role": "user", "content": QUESTION}]
        for _ in range(4):
            got = await create(client, stream, messages=messages, tools=[TOOL])
            if got.stop_reason != "tool_use":
                return got, len(messages)
            calls = [block for block in got.content if block.type == "tool_use"]
            messages.append({"role": "assistant", "content": got.content})
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": '{"result": 84}'} for call in calls]
            messages.append({"role": "user", "content": results})
        raise AssertionError("it calls for ever")

    got, length = with_client(work)
    text = "".join(block.text for block in got.content if block.type == "text")
    assert ("84" in text, got.stop_reason, length >= 3, got.usage.output_tokens > 0) == (True, "end_turn", True, True)


def test_options_reach_the_policy_and_thinking_only_one_that_knows_it():
    def asked(**served):
        policy = Recording()
        options = {"stop_sequences": ["END"], "metadata": {"user_id": "u"}, "extra_body": {"temperature": 0.5}}
        thinking = {"type": "enabled", "budget_tokens": 1024}
        with_client(lambda client: create(client, False, thinking=thinking, **options), policy, **served)
        return policy.asks[0].sampling

    known = {"max_output_tokens": 99, "temperature": 0.5, "stop": ["END"], "top_p": 0.9}
    assert asked(sampling={"top_p": 0.9, "temperature": 1.0}) == known
    taken = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert asked(sampling={"top_p": 0.9}, takes_thinking=True) == known | taken


def test_tokens_are_counted_and_the_model_is_listed():
    async def work(client):
        short, long = [
            await client.messages.count_tokens(model="ours", messages=[{"role": "user", "content": text}])
            for text in ("Hi", "Hi " * 400)
        ]
        return short.input_tokens, long.input_tokens, [model.id async for model in client.models.list()]

    short, long, models = with_client(work)
    assert (0 < short < long, models) == (True, ["ours"])


@pytest.mark.parametrize(
    ("reply", "status", "kind"),
    [
        (PolicyError("gone"), 502, "api_error"),
        (TimedOut("too long"), 504, "timeout_error"),
        (PolicyError("slow down").refused("rate_limit", retry_after=7), 429, "rate_limit_error"),
        (Reply(items=[], finish_reason="context_length"), 400, "invalid_request_error"),
    ],
)
def test_errors_have_the_form_of_the_api(reply, status, kind):
    with pytest.raises(anthropic.APIStatusError) as failure:
        with_client(lambda client: create(client, False), Recording(reply))
    assert (failure.value.status_code, failure.value.body["error"]["type"]) == (status, kind)
    after = failure.value.response.headers.get("retry-after")
    assert after == ("7" if status == 429 else None)


@pytest.mark.parametrize("path", ["v1/messages", "v1/messages/count_tokens"])
@pytest.mark.parametrize("body", [b"{oops", b"{}", b'{"messages": [{"role": "robot"}]}'])
def test_bad_input_is_told_as_the_api_does(path, body):
    served = ServedModel(name="ours", policy=Recording(), sampling={})
    answer = asyncio.run(answer_always(served, IncomingRequest(method="POST", path=path, body=body), seconds=120))
    said = json.loads(answer.body)
    assert (answer.status, said["type"], said["error"]["type"]) == (400, "error", "invalid_request_error")


@pytest.mark.parametrize("extra", [{}, {"stream": True}])
def test_a_policy_reads_the_replies_of_a_served_model(extra):
    """Both ends of the wire: the items of the reply, and of the conversation that goes back."""
    policy = Recording()

    async def run():
        served = ServedModel(name="ours", policy=policy, sampling={}, takes_thinking=True)
        async with on_a_port(served) as (port, outbound):
            asking = plain_policy(
                outbound,
                base_urls=[f"http://127.0.0.1:{port}/v1"],
                wire="messages",
                model_name="ours",
                dialect=Dialect(extra_body=extra),
                pauses=Pauses(first=0.0),
            )
            items = [message("system", "Be brief."), message("user", QUESTION)]
            first = await asking.ask(Ask(items=items, sampling={"thinking": {"type": "adaptive"}, "seed": 3}))
            output = {"type": "function_call_output", "call_id": "toolu_01A", "output": "84"}
            await asking.ask(Ask(items=[*items, *first.items, output]))
            return first

    first = asyncio.run(run())
    call = first.items[-1]
    if extra:
        assert call["arguments"] == ARGUMENTS
    assert json.loads(call["arguments"]) == json.loads(ARGUMENTS)
    assert (first.items[0]["signature"], first.items[1]["encrypted_content"]) == (
        SIGNED["signature"],
        HIDDEN["encrypted_content"],
    )
    assert (first.response_id, first.finish_reason, first.usage) == ("msg_01X", "tool_calls", USAGE)
    assert policy.asks[0].sampling == {"max_output_tokens": 8192, "thinking": {"type": "adaptive"}}
    went, back = first.items, policy.asks[1].items[2:-1]
    plain = [
        [{key: value for key, value in item.items() if key not in ("id", "arguments")} for item in items]
        for items in (went, back)
    ]
    assert plain[0] == plain[1]


class Thinking:
    """The scripted model, with a signed thought before each reply."""

    def __init__(self):
        self.asks = []
        self._script = ScriptedPolicy()

    async def ask(self, ask):
        self.asks.append(ask)
        reply = await self._script.ask(ask)
        reply.items = [{**SIGNED, "signature": f"turn-{len(self.asks)}"}, *reply.items]
        return reply


@pytest.mark.parametrize("extra", [{}, {"stream": True}])
def test_an_agent_solves_a_task_over_the_messages_wire_and_sends_its_thoughts_back(extra):
    policy = Thinking()
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": QUESTION}]},
        "expected_answer": "84",
    }

    async def run():
        async with on_a_port(ServedModel(name="ours", policy=policy, sampling={})) as (port, outbound):
            asking = plain_policy(
                outbound,
                base_urls=[f"http://127.0.0.1:{port}/v1"],
                wire="messages",
                model_name="ours",
                dialect=Dialect(extra_body=extra),
            )
            agent = ServedAgent(
                name="agent",
                harness=Harness(system_prompt="Use the tool."),
                policy=asking,
                server=InProcessServer("calculator", name="calculator"),
                seats=1,
                seconds=60.0,
            )
            return await agent.answer(IncomingRequest(method="POST", path="run", body=json.dumps(row).encode()))

    done = json.loads(asyncio.run(run()).body)
    assert (done["reward"], done["gymweb"]["stop_reason"]) == (1.0, "answered")
    kinds = [item["type"] for item in done["response"]["output"]]
    assert {"reasoning", "function_call", "function_call_output", "message"} == set(kinds)
    first, second = policy.asks
    sent = [item["signature"] for item in second.items if item["type"] == "reasoning"]
    # The script thinks without a signature.
    assert (sent, first.items[0]["content"], len(first.tools)) == (["turn-1", ""], "Use the tool.", 1)
