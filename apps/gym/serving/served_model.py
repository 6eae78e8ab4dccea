"""One policy model as an endpoint: `/v1/responses`, `/v1/chat/completions`, `/v1/models`."""

import math
import secrets
import time
from typing import Any

import msgspec

from apps.gym.errors import PolicyError, TimedOut
from apps.gym.serving.completions import BadCompletion, read_completion, write_chunks, write_completion
from apps.gym.serving.response_stream import write_events
from apps.gym.serving.served_request import (
    Answer,
    Asked,
    Refused,
    Routes,
    find_route,
    greet,
    json_answer,
    not_found,
    read_object,
)
from apps.gym.traces.events import ModelCall, Prompt, TraceUnion
from apps.gym.traces.items import Item, TaskRow, input_items, message
from apps.gym.traces.responses import assemble_response
from apps.gym.wires.dialect import SamplingRefused
from apps.gym.wires.protocol import Ask, Policy, Reply

_NOT_SAMPLING = frozenset(
    {"input", "model", "stream", "tools", "instructions", "background", "store", "user", "include"}
)
_NEVER = {
    "previous_response_id": "no response is stored here: send the whole conversation",
    "conversation": "no conversation is stored here: send the whole of it",
    "prompt": "no prompt templates are stored here",
}


class ServedModel:
    """Errors have the shape that clients of OpenAI's API read: `{"error": {message, type, param, code}}`."""

    cookie = ""

    def __init__(self, *, name: str, policy: Policy, sampling: dict[str, Any]) -> None:
        self.name = name
        self._policy = policy
        self._sampling = sampling

        self._routes: Routes = {
            ("GET", ""): greet,
            ("GET", "v1/models"): self._list,
            ("POST", "v1/responses"): self._respond,
            ("POST", "v1/chat/completions"): self._complete,
        }

    async def answer(self, asked: Asked) -> Answer:
        route = find_route(self._routes, asked)
        if route is None:
            raise not_found()
        try:
            return await route(asked)
        except Refused as refusal:
            return _error(400, f"The body cannot be read: {refusal.detail}")
        except BadCompletion as bad:
            return _error(400, str(bad), param=bad.param)
        except SamplingRefused as refused:
            return _error(400, str(refused))
        except TimedOut as problem:
            return _error(504, str(problem), kind="server_error", code="timeout")
        except PolicyError as problem:
            return _policy_error(problem)

    async def tidy(self) -> None:
        """Nothing is held between two requests."""

    async def close(self) -> None:
        """Nothing is held between two requests."""

    async def _list(self, asked: Asked) -> Answer:
        card = {"id": self.name, "object": "model", "created": 0, "owned_by": "gymweb"}
        return json_answer({"object": "list", "data": [card]})

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


def _policy_error(problem: PolicyError) -> Answer:
    """Pass on that the model behind takes no calls for now, so that clients wait as it asks them to."""
    if problem.refused_by is None:
        return _error(502, str(problem), kind="server_error", code="policy_error")
    code = "insufficient_quota" if problem.refused_by == "quota" else "rate_limit_exceeded"
    answer = _error(429, str(problem), kind=code, code=code)
    if problem.retry_after is None:
        return answer
    return msgspec.structs.replace(answer, headers={"Retry-After": str(math.ceil(problem.retry_after))})


def _error(
    status: int, text: str, *, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> Answer:
    return json_answer({"error": {"message": text, "type": kind, "param": param, "code": code}}, status)
