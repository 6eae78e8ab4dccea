"""Serve one policy model as an endpoint: `/v1/responses`, `/v1/chat/completions`, `/v1/messages`, `/v1/models`."""

import math
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from apps.gym.errors import PolicyError, TimedOut
from apps.gym.serving.completions import BadCompletion, read_completion, write_chunks, write_completion
from apps.gym.serving.response_bodies import read_response_request, write_events, write_response
from apps.gym.serving.served_request import (
    Answer,
    IncomingRequest,
    Refused,
    Served,
    greet,
    json_answer,
    read_object,
)
from apps.gym.traces.items import Item
from apps.gym.wires.dialect import SamplingRefused
from apps.gym.wires.messages_reply import write_message, write_messages_error, write_models, write_token_count
from apps.gym.wires.messages_request import BadMessages, read_messages_request
from apps.gym.wires.messages_stream import write_message_stream
from apps.gym.wires.protocol import Ask, Policy, Reply


class ServedModel(Served):
    """Serve a policy model.

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

    async def answer(self, incoming: IncomingRequest) -> Answer:
        route = self.find_route(incoming)
        error = _messages_error if incoming.path.startswith("v1/messages") else _error
        try:
            return await route(incoming)
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

    async def _list(self, incoming: IncomingRequest) -> Answer:
        return json_answer(write_models([self.name]))

    async def _respond(self, incoming: IncomingRequest) -> Answer:
        body = read_object(incoming.body)
        request = read_response_request(body)
        reply = await self._ask(request.items, request.tools, request.sampling)
        response = write_response(reply, body, name=_id("resp", reply), model=reply.model or self.name)
        if request.stream:
            return Answer(body=write_events(response), content_type="text/event-stream")
        return json_answer(response)

    async def _complete(self, incoming: IncomingRequest) -> Answer:
        request = read_completion(read_object(incoming.body))
        for place, tool in enumerate(request.tools):
            if tool.get("type") == "custom":
                raise BadCompletion("custom tools are not supported. Use functions", f"tools[{place}].type")
        reply = await self._ask(request.items, request.tools, request.sampling)
        completion = write_completion(
            reply, name=_id("chatcmpl", reply), model=reply.model or self.name, created=int(time.time())
        )
        if request.stream:
            return Answer(
                body=write_chunks(completion, with_usage=request.stream_usage), content_type="text/event-stream"
            )
        return json_answer(completion)

    async def _message(self, incoming: IncomingRequest) -> Answer:
        request = read_messages_request(read_object(incoming.body))
        thinking = {"thinking": request.thinking} if request.thinking and self._takes_thinking else {}
        reply = await self._ask(request.items, request.tools, request.sampling | thinking)
        if reply.finish_reason == "context_length" and not reply.items:
            # Clients shorten the conversation when they read this.
            return _messages_error(400, "prompt is too long: the conversation exceeds the context of the model")
        name, model = _id("msg", reply), reply.model or self.name
        if request.stream:
            stream = write_message_stream(reply, name=name, model=model)
            return Answer(body=stream, content_type="text/event-stream")
        return json_answer(write_message(reply, name=name, model=model))

    async def _count_tokens(self, incoming: IncomingRequest) -> Answer:
        request = read_messages_request(read_object(incoming.body))
        return json_answer(write_token_count(request.items, request.tools))

    async def _ask(self, items: list[Item], tools: list[dict[str, Any]], sampling: dict[str, Any]) -> Reply:
        return await self._policy.ask(
            Ask(items=items, tools=tools, sampling={**self._sampling, **sampling}, session=secrets.token_hex(8))
        )


def _id(kind: str, reply: Reply) -> str:
    return reply.response_id or f"{kind}_{secrets.token_hex(12)}"


def _policy_error(problem: PolicyError, error: Callable[..., Answer]) -> Answer:
    """Return an error reply. Throttling is passed on, so that clients wait as long as the model requests."""
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
