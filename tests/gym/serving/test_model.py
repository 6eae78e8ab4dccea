import asyncio
import json

import openai
import pytest
from openai.types.responses import Response

from apps.gym.errors import PolicyError, TimedOut
from apps.gym.serving.served_model import ServedModel
from apps.gym.serving.served_request import IncomingRequest, answer_always
from apps.gym.traces.tokens import capture_tokens
from apps.gym.wires.protocol import Reply
from apps.gym.wires.responses_wire import responses_request
from apps.gym.wires.scripted import ScriptedPolicy
from tests.gym.serving.ports import on_a_port

QUESTION = "What is (3 + 4) * 12? Box it."
TOOL = {
    "name": "calculator",
    "description": "Evaluates",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "84", "annotations": []}]}


class Recording:
    """A policy that keeps what it was asked, and answers what it was given."""

    def __init__(self, reply=None):
        self.asks = []
        self.reply = reply or Reply(items=[SAID], finish_reason="stop", model="m", usage={"input_tokens": 3})

    async def ask(self, ask):
        self.asks.append(ask)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def with_client(work, policy=None, sampling=None):
    """What `work(client)` gives, with the openai package's client at a real port."""

    async def run():
        served = ServedModel(name="ours", policy=policy or ScriptedPolicy(), sampling=sampling or {})
        async with on_a_port(served) as (port, _):
            client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
            async with client:
                return await work(client)

    return asyncio.run(run())


def test_the_responses_api_answers_the_openai_client():
    async def work(client):
        return await client.responses.create(model="ours", input=QUESTION)

    response = with_client(work)
    assert "84" in response.output_text
    assert (response.status, response.usage.input_tokens > 0) == ("completed", True)


def test_chat_completions_answer_the_openai_client_through_a_tool_call():
    async def work(client):
        tools = [{"type": "function", "function": TOOL}]
        messages = [{"role": "user", "content": QUESTION}]
        for _ in range(4):
            completion = await client.chat.completions.create(model="ours", messages=messages, tools=tools)
            choice = completion.choices[0]
            if choice.finish_reason != "tool_calls":
                return choice, len(messages)
            messages.append(choice.message.model_dump(exclude_none=True))
            messages += [
                {"role": "tool", "tool_call_id": call.id, "content": '{"result": 84}'}
                for call in choice.message.tool_calls
            ]
        raise AssertionError("it calls for ever")

    choice, length = with_client(work)
    assert (choice.finish_reason, "84" in choice.message.content, length >= 3) == ("stop", True, True)


def test_streams_are_replayed_for_the_openai_client():
    async def respond(client):
        stream = await client.responses.create(model="ours", input=QUESTION, stream=True)
        return [event async for event in stream]

    async def complete(client):
        messages = [{"role": "user", "content": QUESTION}]
        options = {"include_usage": True}
        stream = await client.chat.completions.create(
            model="ours", messages=messages, stream=True, stream_options=options
        )
        return [chunk async for chunk in stream]

    events = with_client(respond)
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == events[-1].response.output_text
    assert "84" in deltas
    chunks = with_client(complete)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert ("84" in text, chunks[-2].choices[0].finish_reason, chunks[-1].usage.total_tokens > 0) == (
        True,
        "stop",
        True,
    )


def test_the_models_list_names_the_one():
    async def work(client):
        return [model.id async for model in client.models.list()]

    assert with_client(work) == ["ours"]


def test_what_chat_asks_for_is_said_in_the_words_of_the_responses_api():
    policy = Recording()

    async def work(client):
        await client.chat.completions.create(
            model="ours",
            messages=[{"role": "developer", "content": "be brief"}, {"role": "user", "content": "x"}],
            tools=[{"type": "function", "function": TOOL}],
            tool_choice={"type": "function", "function": {"name": "calculator"}},
            max_completion_tokens=7,
            reasoning_effort="low",
            temperature=0.5,
            response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
            extra_body={"top_k": 5},
        )

    with_client(work, policy, {"temperature": 1.0, "top_p": 0.9})
    [ask] = policy.asks
    assert [item["role"] for item in ask.items] == ["developer", "user"]
    assert ask.tools == [{"type": "function", **TOOL}]
    assert ask.sampling == {
        "temperature": 0.5,
        "top_p": 0.9,
        "tool_choice": {"type": "function", "name": "calculator"},
        "max_output_tokens": 7,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}},
        "top_k": 5,
    }


def test_instructions_and_sampling_of_the_responses_api_reach_the_policy():
    policy = Recording()

    async def work(client):
        await client.responses.create(model="ours", input="x", instructions="be brief", temperature=0.2)

    with_client(work, policy)
    [ask] = policy.asks
    assert [item["role"] for item in ask.items] == ["system", "user"]
    assert ask.sampling == {"temperature": 0.2}


def ask(path, body, reply=None):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    served = ServedModel(name="ours", policy=Recording(reply), sampling={})
    answer = asyncio.run(answer_always(served, IncomingRequest(method="POST", path=path, body=raw), seconds=120))
    return answer.status, json.loads(answer.body)


def test_captured_tokens_are_where_trainers_read_them():
    tokens = capture_tokens([1, 2], [3], [-0.5])
    fields = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    reply = Reply(items=[SAID], finish_reason="stop", tokens=tokens)
    response = ask("v1/responses", {"input": "x"}, reply)[1]
    assert Response.model_validate(response).output_text == "84"
    item = response["output"][-1]
    message = ask("v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, reply)[1]["choices"][0][
        "message"
    ]
    assert {key: item[key] for key in fields} == {key: message[key] for key in fields} == fields


@pytest.mark.parametrize(("reason", "finish"), [("max_output_tokens", "length"), ("context_length", "length")])
def test_a_reply_that_was_cut_says_so_on_both_wires(reason, finish):
    reply = Reply(items=[SAID], finish_reason=reason)
    response = ask("v1/responses", {"input": "x"}, reply)[1]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    body = {"messages": [{"role": "user", "content": "x"}]}
    assert ask("v1/chat/completions", body, reply)[1]["choices"][0]["finish_reason"] == finish


CUSTOM = {"type": "custom", "custom": {"name": "code"}}
BAD = [
    ("v1/responses", b"{oops", None),
    ("v1/responses", {}, "input"),
    ("v1/responses", {"input": []}, "input"),
    ("v1/responses", {"input": [7]}, "input[0]"),
    ("v1/responses", {"input": [{"a": 1}]}, "input[0]"),
    ("v1/responses", {"input": "x", "tools": 7}, "tools"),
    ("v1/responses", {"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
    ("v1/chat/completions", {}, "messages"),
    ("v1/chat/completions", {"messages": []}, "messages"),
    ("v1/chat/completions", {"messages": [{"role": "robot"}]}, "messages[0].role"),
    ("v1/chat/completions", {"messages": [{"role": ["user"]}]}, "messages[0].role"),
    ("v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [7]}]}, "messages[0].tool_calls[0]"),
    ("v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "n": 2}, "n"),
    ("v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "functions": []}, "functions"),
    ("v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": [CUSTOM]}, "tools[0].type"),
]


@pytest.mark.parametrize(("path", "body", "param"), BAD)
def test_bad_input_is_told_as_clients_of_openai_read_it(path, body, param):
    status, said = ask(path, body)
    assert (status, said["error"]["type"], said["error"]["param"]) == (400, "invalid_request_error", param)


@pytest.mark.parametrize(("error", "status"), [(PolicyError("gone"), 502), (TimedOut("too long"), 504)])
def test_a_policy_that_fails_is_a_server_error(error, status):
    answered, said = ask("v1/responses", {"input": "x"}, error)
    assert (answered, said["error"]["type"], said["error"]["message"]) == (status, "server_error", str(error))


def test_an_impossible_request_is_the_clients_error():
    class Strict(Recording):
        async def ask(self, ask):
            responses_request(ask, model_name="m")
            return await super().ask(ask)

    served = ServedModel(name="ours", policy=Strict(Reply(items=[SAID], finish_reason="stop")), sampling={})
    body = json.dumps({"input": "x", "n": 3}).encode()
    answer = asyncio.run(
        answer_always(served, IncomingRequest(method="POST", path="v1/responses", body=body), seconds=120)
    )
    told = json.loads(answer.body)["error"]["message"]
    assert (answer.status, "cannot set n" in told) == (400, True)
