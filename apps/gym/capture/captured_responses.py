"""OpenAI's Responses API for captured agents (https://platform.openai.com/docs/api-reference/responses).

Streams have the events that the `openai` package and Codex read. All ids are GymWeb's own, because some models repeat
theirs. Clients may name them later, see apps.gym.capture.previous_responses.
"""

from typing import Any, Literal

import orjson

from apps.gym.capture.capture_wires import CapturedRequest, OpenAIErrors, keep_functions, keep_known
from apps.gym.capture.previous_responses import PreviousResponses, item_ids
from apps.gym.serving.completions import BadCompletion
from apps.gym.serving.response_bodies import read_response_request, write_events, write_response
from apps.gym.traces.items import Item, item_type
from apps.gym.wires.chat_deltas import Delta
from apps.gym.wires.protocol import Reply
from apps.gym.wires.tool_namespaces import join_names, read_namespaces

_KNOWN_ITEMS = {"message", "reasoning", "function_call", "function_call_output"}
_CLIENT_CALLS = {"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "shell_call"}
"""Calls that clients execute. Without them and their outputs, the conversation would be another one."""
_REPEATED = ("tools", "parallel_tool_calls", "instructions", "previous_response_id", "store")
"""Fields of a request that its response repeats."""
Kind = Literal["message", "reasoning", "function_call"]


class ResponsesWire(OpenAIErrors):
    """OpenAI's Responses."""

    name, conversation = "responses", "input"

    def read(self, body: dict[str, Any], earlier: PreviousResponses) -> CapturedRequest:
        if body.get("background"):
            raise BadCompletion("responses in the background are not supported. Leave `background` out", "background")
        named = body.get("previous_response_id")
        request = read_response_request({**body, "previous_response_id": None})
        sampling, notes = keep_known(request.sampling)
        flat, names = read_namespaces(request.tools)
        tools, dropped = keep_functions(flat, sampling)
        # The instructions are the first item. A later request does not inherit them.
        own = request.items[: bool(body.get("instructions"))]
        asked = request.items[len(own) :]
        kinds = list(map(item_type, asked))
        for kind in {*kinds} - _KNOWN_ITEMS:
            if kind.removesuffix("_output") in _CLIENT_CALLS:
                here = f"input[{kinds.index(kind)}]"
                problem = f"{here} has the type {kind}. Only function calls and their outputs are supported"
                raise BadCompletion(problem, f"{here}.type")
        asked = [join_names(item) for item in earlier.restore(asked)]
        previous, before = (0, []) if named is None else earlier.find(named)
        kept = [item for item in asked if item_type(item) in _KNOWN_ITEMS]
        unknown = sorted({*map(item_type, asked)} - _KNOWN_ITEMS) if len(kept) < len(asked) else []
        notes += dropped + [f"items of type {kind} were dropped" for kind in unknown]
        return CapturedRequest(
            items=[*own, *before, *kept],
            tools=tools,
            sampling=sampling,
            model=str(body.get("model") or ""),
            stream=request.stream,
            notes=notes,
            body={name: body.get(name) for name in _REPEATED} | {"tools": tools, "namespaces": names},
            previous=previous,
        )

    def write(self, reply: Reply, request: CapturedRequest, name: str) -> dict[str, Any]:
        # Without token IDs, which agents do not need.
        plain = Reply(items=reply.items, finish_reason=reply.finish_reason, usage=reply.usage, model=reply.model)
        response = write_response(plain, request.body, name=f"resp_{name}", model=request.model or reply.model)
        ids = item_ids(reply.items, name)
        response["output"] = [
            {**item, **request.body["namespaces"].get(item.get("name"), {}), "id": own}
            for item, own in zip(response["output"], ids, strict=True)
        ]
        return response | {field: request.body[field] for field in _REPEATED if field not in response}

    def open_stream(self, request: CapturedRequest, name: str) -> "ResponsesStream":
        return ResponsesStream(self, request, name)


class ResponsesStream:
    """The events of one streamed response."""

    def __init__(self, wire: ResponsesWire, request: CapturedRequest, name: str) -> None:
        self._wire, self._request, self._name = wire, request, name
        self._number = 0
        self._items: list[Item] = []  # streamed so far, the last one still open
        self._pieces: list[str] = []  # texts of the open item
        self._begun = wire.write(Reply(items=[], finish_reason="stop"), request, name) | {
            "status": "in_progress",
            "output": [],
            "usage": None,
        }

    def begin(self) -> bytes:
        return self._event("response.created", response=self._begun) + self._event(
            "response.in_progress", response=self._begun
        )

    def add(self, delta: Delta) -> bytes:
        written = b""
        if delta.kind == "call":
            tool = {"name": delta.text, **self._request.body["namespaces"].get(delta.text, {})}
            written = self._close() + self._open("function_call", call_id=delta.call_id, **tool, arguments="")
        elif delta.kind == "arguments":
            written = self._tell("response.function_call_arguments.delta", delta=delta.text)
            self._pieces.append(delta.text)
        else:
            kind: Kind = "reasoning" if delta.kind == "reasoning" else "message"
            if not self._items or self._items[-1]["type"] != kind:
                written = self._close() + (
                    self._open(kind, summary=[])
                    if kind == "reasoning"
                    else self._open(kind, role="assistant", content=[])
                )
            self._pieces.append(delta.text)
            written += self._tell_text(kind, delta.text)
        return written

    def end(self, reply: Reply) -> bytes:
        response = self._wire.write(reply, self._request, self._name)
        if not self._items:
            # Without the first event, which the client already has.
            return write_events(response, start=self._number - 1).partition(b"\n\n")[2]
        written = self._close()
        kind = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
        return written + self._event(kind, response=response)

    def _open(self, kind: Kind, **fields: Any) -> bytes:
        *_, own_id = item_ids([*self._items, {"type": kind}], self._name)
        item = {"type": kind, "id": own_id, "status": "in_progress", **fields}
        self._items.append(item)
        self._pieces = []
        written = self._event("response.output_item.added", output_index=len(self._items) - 1, item=item)
        if kind == "message":
            written += self._tell("response.content_part.added", content_index=0, part=_text_part(""))
        elif kind == "reasoning":
            part = {"type": "summary_text", "text": ""}
            written += self._tell("response.reasoning_summary_part.added", summary_index=0, part=part)
        return written

    def _tell_text(self, kind: Kind, text: str) -> bytes:
        if kind == "reasoning":
            return self._tell("response.reasoning_summary_text.delta", summary_index=0, delta=text)
        return self._tell("response.output_text.delta", content_index=0, delta=text, logprobs=[])

    def _close(self) -> bytes:
        """Return the events that end the open item."""
        if not self._items:
            return b""
        item, text = self._items[-1], "".join(self._pieces)
        item["status"] = "completed"
        if item["type"] == "function_call":
            item["arguments"] = text
            written = self._tell("response.function_call_arguments.done", name=item["name"], arguments=text)
        elif item["type"] == "reasoning":
            item["summary"] = [{"type": "summary_text", "text": text}]
            written = self._tell("response.reasoning_summary_text.done", summary_index=0, text=text)
            written += self._tell("response.reasoning_summary_part.done", summary_index=0, part=item["summary"][0])
        else:
            item["content"] = [_text_part(text)]
            written = self._tell("response.output_text.done", content_index=0, text=text, logprobs=[])
            written += self._tell("response.content_part.done", content_index=0, part=item["content"][0])
        return written + self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _tell(self, kind: str, **fields: Any) -> bytes:
        """Return an event about the open item."""
        return self._event(kind, item_id=self._items[-1]["id"], output_index=len(self._items) - 1, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}
