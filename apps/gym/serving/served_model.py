"""Serve one policy model as an endpoint: `/v1/responses`, `/v1/chat/completions`, `/v1/messages`, `/v1/models`."""

import math
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec
import orjson

from apps.gym.errors import PolicyError, TimedOut
from apps.gym.serving.completions import BadCompletion, read_completion, write_chunks, write_completion
from apps.gym.serving.served_request import (
    Answer,
    Asked,
    Refused,
    Served,
    greet,
    json_answer,
    read_object,
)
from apps.gym.traces.events import ModelCall, Prompt, TraceUnion
from apps.gym.traces.items import Item, TaskRow, input_items, message
from apps.gym.traces.responses import assemble_response
from apps.gym.wires.dialect import SamplingRefused
from apps.gym.wires.messages_reply import write_message, write_messages_error, write_models, write_token_count
from apps.gym.wires.messages_request import BadMessages, read_messages_request
from apps.gym.wires.messages_stream import write_message_stream
from apps.gym.wires.protocol import Ask, Policy, Reply


def write_events(response: dict[str, Any]) -> bytes:
    """Return server-sent events: created, every item with its text, completed (or incomplete)."""
    written: list[bytes] = []

    def tell(kind: str, **fields: Any) -> None:
        event = {"type": kind, "sequence_number": len(written), **fields}
        written.append(b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n")

    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    tell("response.created", response=begun)
    for place, item in enumerate(response["output"]):
        tell("response.output_item.added", output_index=place, item=_empty(item))
        _tell_content(tell, item, place)
        tell("response.output_item.done", output_index=place, item=item)
    tell("response.incomplete" if response.get("status") == "incomplete" else "response.completed", response=response)
    return b"".join(written)


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it is at its start, without content."""
    blank: dict[str, Any] = {"content": []} if item.get("type") == "message" else {}
    if item.get("type") == "function_call":
        blank = {"arguments": ""}
    return {**item, **blank, "status": "in_progress"}


def _tell_content(tell: Any, item: dict[str, Any], place: int) -> None:
    at = {"item_id": item.get("id", ""), "output_index": place}
    if item.get("type") == "function_call":
        tell("response.function_call_arguments.delta", **at, delta=item["arguments"])
        tell("response.function_call_arguments.done", **at, name=item.get("name", ""), arguments=item["arguments"])
        return
    parts = item.get("content") if item.get("type") == "message" else []
    for index, part in enumerate(parts if isinstance(parts, list) else []):
        if part.get("type") != "output_text":
            continue
        here = {**at, "content_index": index}
        tell("response.content_part.added", **here, part={**part, "text": ""})
        tell("response.output_text.delta", **here, delta=part["text"], logprobs=[])
        tell("response.output_text.done", **here, text=part["text"], logprobs=[])
        tell("response.content_part.done", **here, part=part)


_NOT_SAMPLING = frozenset(
    {"input", "model", "stream", "tools", "instructions", "background", "store", "user", "include"}
)
_NEVER = {
    "previous_response_id": "responses are not stored. Send the whole conversation",
    "conversation": "conversations are not stored. Send the whole conversation",
    "prompt": "prompt templates are not supported",
}


class ServedModel(Served):
    """Serves a policy model.

    Errors have the form of OpenAI's API, `{"error": {message, type, param, code}}`, or below `/v1/messages` that of
    Anthropic's. With `takes_thinking`, the model has the Messages API itself and gets the option `thinking`.
    """

    def __init__(self, *, name: str, policy: Policy, sampling: dict[str, Any], takes_thinking: bool = False) -> None:
        self.name = name
        self._policy = policy
        self._sampling = sampling
        self._takes_thinking = takes_thinking

        self.routes = {
            ("GET", ""): greet,
            ("GET", "v1/models"): self._list,
            ("POST", "v1/responses"): self._respond,
            ("POST", "v1/chat/completions"): self._complete,
            ("POST", "v1/messages"): self._message,
            ("POST", "v1/messages/count_tokens"): self._count_tokens,
        }

    async def answer(self, asked: Asked) -> Answer:
        route = self.find_route(asked)
        error = _messages_error if asked.path.startswith("v1/messages") else _error
        try:
            return await route(asked)
        except Refused as refusal:
            return error(400, f"The body cannot be read: {refusal.detail}")
        except BadCompletion as bad:
            return error(400, str(bad), param=bad.param)
        except (BadMessages, SamplingRefused) as refused:
            return error(400, str(refused))
        except TimedOut as problem:
            return error(504, str(problem), kind="server_error", code="timeout")
        except PolicyError as problem:
            return _policy_error(problem, error)

    async def _list(self, asked: Asked) -> Answer:
        return json_answer(write_models([self.name]))

    async def _respond(self, asked: Asked) -> Answer:
        given = {key: value for key, value in read_object(asked.body).items() if value is not None}
        for name, why in _NEVER.items():
            if name in given:
                raise BadCompletion(why, name)
        reply = await self._ask(_items(given), _tools(given), _sampling(given))
        items = _with_tokens(reply)
        params = {name: given[name] for name in ("tools", "tool_choice", "parallel_tool_calls") if name in given}
        call = ModelCall(seen=0, items=items, model=reply.model, response_id=_id("resp", reply), usage=reply.usage)
        events: list[TraceUnion] = [Prompt(items=[]), call]
        row: TaskRow = {"responses_create_params": {"input": [], **params}}
        reason = reply.finish_reason
        response = assemble_response(
            events, row, stop_reason="max_output_tokens" if reason == "context_length" else reason
        )
        response = {**response, "model": reply.model or self.name, "created_at": time.time()}
        if given.get("stream"):
            return Answer(body=write_events(response), content_type="text/event-stream")
        return json_answer(response)

    async def _complete(self, asked: Asked) -> Answer:
        wish = read_completion(read_object(asked.body))
        reply = await self._ask(wish.items, wish.tools, wish.sampling)
        completion = write_completion(
            reply, name=_id("chatcmpl", reply), model=reply.model or self.name, created=int(time.time())
        )
        if wish.stream:
            return Answer(body=write_chunks(completion, with_usage=wish.stream_usage), content_type="text/event-stream")
        return json_answer(completion)

    async def _message(self, asked: Asked) -> Answer:
        wish = read_messages_request(read_object(asked.body))
        thinking = {"thinking": wish.thinking} if wish.thinking and self._takes_thinking else {}
        reply = await self._ask(wish.items, wish.tools, wish.sampling | thinking)
        if reply.finish_reason == "context_length" and not reply.items:
            # Clients shorten the conversation when they read this.
            return _messages_error(400, "prompt is too long: the conversation exceeds the context of the model")
        name, model = _id("msg", reply), reply.model or self.name
        if wish.stream:
            stream = write_message_stream(reply, name=name, model=model)
            return Answer(body=stream, content_type="text/event-stream")
        return json_answer(write_message(reply, name=name, model=model))

    async def _count_tokens(self, asked: Asked) -> Answer:
        wish = read_messages_request(read_object(asked.body))
        return json_answer(write_token_count(wish.items, wish.tools))

    async def _ask(self, items: list[Item], tools: list[dict[str, Any]], sampling: dict[str, Any]) -> Reply:
        return await self._policy.ask(
            Ask(items=items, tools=tools, sampling={**self._sampling, **sampling}, session=secrets.token_hex(8))
        )


def _items(given: dict[str, Any]) -> list[Item]:
    asked = given.get("input")
    if not isinstance(asked, str | list) or not asked:
        raise BadCompletion("input is missing: text, or a list of items", "input")
    if isinstance(asked, list) and not all(
        isinstance(item, dict) and (isinstance(item.get("type"), str) or isinstance(item.get("role"), str))
        for item in asked
    ):
        raise BadCompletion("input must be a list of items, each with a type or a role", "input")
    items = input_items({"responses_create_params": {"input": asked}})
    instructions = given.get("instructions")
    return [message("system", instructions), *items] if isinstance(instructions, str) and instructions else items


def _tools(given: dict[str, Any]) -> list[dict[str, Any]]:
    tools = given.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise BadCompletion("tools must be a list of tools", "tools")
    return tools


def _sampling(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in _NOT_SAMPLING}


def _with_tokens(reply: Reply) -> list[Item]:
    if reply.tokens is None or not reply.items:
        return reply.items
    return [*reply.items[:-1], reply.items[-1] | reply.tokens.fields()]


def _id(kind: str, reply: Reply) -> str:
    return reply.response_id or f"{kind}_{secrets.token_hex(12)}"


def _policy_error(problem: PolicyError, error: Callable[..., Answer]) -> Answer:
    """Return an error reply. Throttling by the model is passed on, so that clients wait as it asks."""
    if problem.refused_by is None:
        return error(502, str(problem), kind="server_error", code="policy_error")
    code = "insufficient_quota" if problem.refused_by == "quota" else "rate_limit_exceeded"
    answer = error(429, str(problem), kind=code, code=code)
    if problem.retry_after is None:
        return answer
    return msgspec.structs.replace(answer, headers={"Retry-After": str(math.ceil(problem.retry_after))})


def _error(
    status: int, text: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> Answer:
    return json_answer({"error": {"message": text, "type": kind, "param": param, "code": code}}, status)


def _messages_error(status: int, text: str, **ignored: Any) -> Answer:
    return json_answer(write_messages_error(status, text), status)
