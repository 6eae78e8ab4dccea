"""OpenAI's Responses API for captured agents (https://platform.openai.com/docs/api-reference/responses).

Streams have the events that the `openai` package and Codex read. In the last event, items have
the ids that they had in the stream.
"""

from typing import Any, Literal

import orjson

from apps.gym.capture.capture_wires import CapturedRequest, OpenAIErrors, keep_known
from apps.gym.serving.completions import BadCompletion
from apps.gym.serving.response_bodies import read_response_request, write_events, write_response
from apps.gym.traces.items import Item, item_type
from apps.gym.wires.chat_deltas import Delta
from apps.gym.wires.protocol import Reply

_KNOWN_ITEMS = {"message", "reasoning", "function_call", "function_call_output"}
Kind = Literal["message", "reasoning", "function_call"]


class ResponsesWire(OpenAIErrors):
    """OpenAI's Responses."""

    name = "responses"

    def read(self, body: dict[str, Any]) -> CapturedRequest:
        if body.get("background"):
            raise BadCompletion("responses in the background are not supported. Leave `background` out", "background")
        request = read_response_request(body)
        sampling, notes = keep_known(request.sampling)
        tools = [tool for tool in request.tools if tool.get("type", "function") == "function"]
        dropped = [tool for tool in request.tools if tool not in tools]
        notes += [f"tool {tool.get('name') or tool.get('type')} was dropped" for tool in dropped]
        items = [item for item in request.items if item_type(item) in _KNOWN_ITEMS]
        unknown = sorted({item_type(item) for item in request.items} - _KNOWN_ITEMS)
        notes += [f"items of type {kind} were dropped" for kind in unknown]
        return CapturedRequest(
            items=items,
            tools=tools,
            sampling=sampling,
            model=str(body.get("model") or ""),
            stream=request.stream,
            notes=notes,
            body={"tools": tools, "parallel_tool_calls": body.get("parallel_tool_calls")},
        )

    def write(self, reply: Reply, request: CapturedRequest, name: str) -> dict[str, Any]:
        return write_response(
            _plain(reply), request.body, name=reply.response_id or name, model=request.model or reply.model
        )

    def open_stream(self, request: CapturedRequest, name: str) -> "ResponsesStream":
        return ResponsesStream(request, name)


class ResponsesStream:
    """The events of one streamed response."""

    def __init__(self, request: CapturedRequest, name: str) -> None:
        self._request, self._name = request, name
        self._number = 0
        self._items: list[Item] = []  # streamed so far, the last one still open
        self._pieces: list[str] = []  # texts of the open item
        self._begun = write_response(
            Reply(items=[], finish_reason="stop"), request.body, name=name, model=request.model
        ) | {
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
            written = self._close() + self._open("function_call", call_id=delta.call_id, name=delta.text, arguments="")
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
        response = write_response(_plain(reply), self._request.body, name=self._name, model=self._request.model)
        if not self._items:
            # Without the first event, which the client already has.
            return write_events(response, start=self._number - 1).partition(b"\n\n")[2]
        written = self._close()
        output = response["output"]
        if [item["type"] for item in output] == [item["type"] for item in self._items]:
            response["output"] = [{**item, "id": told["id"]} for item, told in zip(output, self._items, strict=True)]
        kind = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
        return written + self._event(kind, response=response)

    def _open(self, kind: Kind, **fields: Any) -> bytes:
        item = {"type": kind, "id": f"{kind}_{self._name}_{len(self._items)}", "status": "in_progress", **fields}
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


def _plain(reply: Reply) -> Reply:
    """Return the reply without token IDs, which agents do not need."""
    return Reply(items=reply.items, finish_reason=reply.finish_reason, usage=reply.usage, model=reply.model)
