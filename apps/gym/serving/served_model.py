"""Serve one policy model as an endpoint: `/v1/responses`, `/v1/chat/completions`, `/v1/models`."""

import math
import secrets
import time
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
from apps.gym.wires.protocol import Ask, Policy, Reply


class ServedModel(Served):
    """Serve a policy model. Errors have the format of OpenAI's API: `{"error": {message, type, param, code}}`."""

    def __init__(self, *, name: str, policy: Policy, sampling: dict[str, Any]) -> None:
        self.name = name
        self._policy = policy
        self._sampling = sampling

        self.routes = {
            ("GET", ""): greet,
            ("GET", "v1/models"): self._list,
            ("POST", "v1/responses"): self._respond,
            ("POST", "v1/chat/completions"): self._complete,
        }

    async def answer(self, incoming: IncomingRequest) -> Answer:
        route = self.find_route(incoming)
        try:
            return await route(incoming)
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

    async def _list(self, incoming: IncomingRequest) -> Answer:
        card = {"id": self.name, "object": "model", "created": 0, "owned_by": "gymweb"}
        return json_answer({"object": "list", "data": [card]})

    async def _respond(self, incoming: IncomingRequest) -> Answer:
        body = read_object(incoming.body)
        wish = read_response_request(body)
        reply = await self._ask(wish.items, wish.tools, wish.sampling)
        response = write_response(reply, body, name=_id("resp", reply), model=reply.model or self.name)
        if wish.stream:
            return Answer(body=write_events(response), content_type="text/event-stream")
        return json_answer(response)

    async def _complete(self, incoming: IncomingRequest) -> Answer:
        request = read_completion(read_object(incoming.body))
        reply = await self._ask(request.items, request.tools, request.sampling)
        completion = write_completion(
            reply, name=_id("chatcmpl", reply), model=reply.model or self.name, created=int(time.time())
        )
        if request.stream:
            return Answer(
                body=write_chunks(completion, with_usage=request.stream_usage), content_type="text/event-stream"
            )
        return json_answer(completion)

    async def _ask(self, items: list[Item], tools: list[dict[str, Any]], sampling: dict[str, Any]) -> Reply:
        return await self._policy.ask(
            Ask(items=items, tools=tools, sampling={**self._sampling, **sampling}, session=secrets.token_hex(8))
        )


def _id(kind: str, reply: Reply) -> str:
    return reply.response_id or f"{kind}_{secrets.token_hex(12)}"


def _policy_error(problem: PolicyError) -> Answer:
    """Return an error reply. Throttling is passed on, so that clients wait as long as the model requests."""
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
