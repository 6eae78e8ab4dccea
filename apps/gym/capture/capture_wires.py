"""The API formats in which captured agents call the model: read a request, and write a reply, a stream or an error.

Requests become Responses items. The sampling of the collection takes precedence over the agent's, so that rollouts of
one collection are comparable.
"""

import time
from typing import Any, Protocol

import msgspec
import orjson

from apps.gym.capture.previous_responses import PreviousResponses
from apps.gym.serving.completions import BadCompletion, read_completion, write_chunks, write_completion
from apps.gym.traces.items import Item, Tool, as_object
from apps.gym.wires.chat_deltas import Delta
from apps.gym.wires.protocol import Reply

KEPT = frozenset(
    {
        "frequency_penalty",
        "max_output_tokens",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning",
        "stop",
        "temperature",
        "text",
        "tool_choice",
        "top_k",
        "top_p",
    }
)
"""Sampling parameters of the agent that are sent to the model, with the names of the Responses API."""
_DROPPED_SILENTLY = frozenset(
    {"seed", "store", "user", "metadata", "prompt_cache_key", "safety_identifier", "service_tier"}
)
"""Parameters without an effect on the reply, or set by the collection. No note names them."""


TOO_LONG = "context_length_exceeded"
"""The code of the error for a conversation that is longer than the context of the model."""


class CapturedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A captured request as items, tools and sampling.

    `notes` name parameters that have no effect here. `body` has the fields of the request that its reply repeats.
    `previous` is the call that the client names as the previous one, 0 if it names none.
    """

    items: list[Item]
    tools: list[Tool]
    sampling: dict[str, Any]
    model: str
    stream: bool = False
    stream_usage: bool = False
    notes: list[str] = []
    body: dict[str, Any] = {}
    previous: int = 0


class StreamWriter(Protocol):
    """Writes one streamed reply as events: `begin`, any number of `add`, `end`."""

    def begin(self) -> bytes: ...

    def add(self, delta: Delta) -> bytes: ...

    def end(self, reply: Reply) -> bytes:
        """Return the missing events: all of them if there were no deltas, and the end of the stream."""
        ...


class CaptureWire(Protocol):
    """One API format. `name` is stored with each call."""

    name: str

    def read(self, body: dict[str, Any], earlier: PreviousResponses) -> CapturedRequest:
        """Return the request. Raises BadCompletion or BadMessages if it cannot be answered."""
        ...

    def write(self, reply: Reply, request: CapturedRequest, name: str) -> dict[str, Any]:
        """Return the body of a reply. `name` is unique to the call, and the reply's id if the model gave none."""
        ...

    def open_stream(self, request: CapturedRequest, name: str) -> "StreamWriter":
        """Return the writer of a stream. `name` is unique to the call."""
        ...

    def write_error(self, status: int, message: str, *, code: str, param: str | None = None) -> dict[str, Any]: ...


def choose_sampling(request: CapturedRequest, collection: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the sampling of a call: the agent's, overridden by the collection's, with the seed of the call.

    If both limit the output tokens, the smaller limit applies.
    """
    chosen = {**request.sampling, **collection, "seed": seed}
    limits = [given["max_output_tokens"] for given in (request.sampling, collection) if given.get("max_output_tokens")]
    if limits:
        chosen["max_output_tokens"] = min(limits)
    return chosen


class OpenAIErrors:
    """The bodies of errors in OpenAI's APIs. `conversation` is the field of a request that has the conversation."""

    conversation = "messages"

    def write_error(self, status: int, message: str, *, code: str, param: str | None = None) -> dict[str, Any]:
        kind = "invalid_request_error" if status < 500 else "server_error"
        param = self.conversation if code == TOO_LONG else param
        return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class ChatWire(OpenAIErrors):
    """OpenAI's Chat Completions (https://platform.openai.com/docs/api-reference/chat)."""

    name = "chat"

    def read(self, body: dict[str, Any], earlier: PreviousResponses) -> CapturedRequest:
        completion = read_completion(body)
        sampling, notes = keep_known(completion.sampling)
        tools, dropped = keep_functions(completion.tools, sampling)
        return CapturedRequest(
            items=completion.items,
            tools=tools,
            sampling=sampling,
            model=str(body.get("model") or ""),
            stream=completion.stream,
            stream_usage=completion.stream_usage,
            notes=[*notes, *dropped, *completion.notes],
        )

    def write(self, reply: Reply, request: CapturedRequest, name: str) -> dict[str, Any]:
        # Without token IDs: agents do not need them, and their size would slow down each call.
        plain = msgspec.structs.replace(reply, tokens=None)
        return write_completion(
            plain, name=reply.response_id or name, model=request.model or reply.model, created=int(time.time())
        )

    def open_stream(self, request: CapturedRequest, name: str) -> "ChatStream":
        return ChatStream(self, request, name)


class ChatStream:
    """The chunks of a Chat Completions stream."""

    def __init__(self, wire: ChatWire, request: CapturedRequest, name: str) -> None:
        self._wire, self._request, self._name = wire, request, name
        self._created = int(time.time())
        self._has_deltas = False
        chunk = {
            "id": name,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": request.model,
            "choices": [{"index": 0, "finish_reason": None}],
        }
        # Each chunk has its delta in this place.
        self._begin = b"data: " + orjson.dumps(chunk).removesuffix(b"}]}") + b',"delta":'

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def add(self, delta: Delta) -> bytes:
        self._has_deltas = True
        if delta.kind == "text":
            return self._chunk({"content": delta.text})
        if delta.kind == "reasoning":
            return self._chunk({"reasoning_content": delta.text})
        if delta.kind == "call":
            call = {"id": delta.call_id, "type": "function", "function": {"name": delta.text, "arguments": ""}}
        else:
            call = {"function": {"arguments": delta.text}}
        return self._chunk({"tool_calls": [{"index": delta.number, **call}]})

    def end(self, reply: Reply) -> bytes:
        written = self._wire.write(reply, self._request, self._name)
        written |= {"id": self._name, "created": self._created}
        chunks = write_chunks(written, with_usage=self._request.stream_usage)
        # The first chunk has the whole message, which the client already has.
        return chunks.partition(b"\n\n")[2] if self._has_deltas else chunks

    def _chunk(self, delta: dict[str, Any]) -> bytes:
        return b"%b%b}]}\n\n" % (self._begin, orjson.dumps(delta))


def keep_known(sampling: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters that are sent to the model, and a note for each other one."""
    kept = {name: value for name, value in sampling.items() if name in KEPT}
    dropped = sorted(sampling.keys() - KEPT - _DROPPED_SILENTLY)
    return kept, [f"{name} was dropped" for name in dropped]


def keep_functions(tools: list[Tool], sampling: dict[str, Any]) -> tuple[list[Tool], list[str]]:
    """Return the functions, and a note for each other tool. Models get only functions.

    Raises BadCompletion if `tool_choice` names another kind of tool.
    """
    choice = sampling.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") not in ("function", "allowed_tools"):
        raise BadCompletion("tool_choice must name a function. Other tools are not supported", "tool_choice")
    kept: list[Tool] = []
    notes: list[str] = []
    for tool in tools:
        if (tool.get("type") or "function") == "function":
            kept.append(tool)
        else:
            name = as_object(tool.get("custom")).get("name") or tool.get("name") or tool["type"]
            notes.append(f"tool {name} was dropped")
    return kept, notes
