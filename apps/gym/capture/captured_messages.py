"""Anthropic's Messages API for captured agents (https://docs.anthropic.com/en/api/messages)."""

from typing import Any

from apps.gym.capture.capture_wires import TOO_LONG, CapturedRequest, keep_known
from apps.gym.capture.previous_responses import PreviousResponses
from apps.gym.wires.chat_deltas import Delta
from apps.gym.wires.messages_reply import stop_reason, write_message, write_messages_error
from apps.gym.wires.messages_request import read_messages_request
from apps.gym.wires.messages_stream import MessageEvents, write_message_stream
from apps.gym.wires.protocol import Reply


class MessagesWire:
    name = "messages"

    def read(self, body: dict[str, Any], earlier: PreviousResponses) -> CapturedRequest:
        """Return the request. `thinking` has no effect: the model's own settings decide whether it reasons."""
        request = read_messages_request(body)
        sampling, notes = keep_known(request.sampling)
        return CapturedRequest(
            items=request.items,
            tools=request.tools,
            sampling=sampling,
            model=request.model,
            stream=request.stream,
            notes=[*notes, *(f"{what} was dropped" for what in request.dropped)],
        )

    def write(self, reply: Reply, request: CapturedRequest, name: str) -> dict[str, Any]:
        return write_message(reply, name=reply.response_id or name, model=request.model)

    def open_stream(self, request: CapturedRequest, name: str) -> "MessagesStream":
        return MessagesStream(request, name)

    def write_error(self, status: int, message: str, *, code: str, param: str | None = None) -> dict[str, Any]:
        # Clients shorten the conversation when they read these words.
        return write_messages_error(status, f"prompt is too long: {message}" if code == TOO_LONG else message)


class MessagesStream:
    """The events of one streamed message."""

    def __init__(self, request: CapturedRequest, name: str) -> None:
        self._request, self._name = request, name
        self._events = MessageEvents(name=name, model=request.model)
        self._has_deltas = False

    def begin(self) -> bytes:
        return self._events.start()

    def add(self, delta: Delta) -> bytes:
        self._has_deltas = True
        if delta.kind == "call":
            return self._events.call(delta.call_id, delta.text)
        if delta.kind == "arguments":
            return self._events.arguments(delta.text)
        return self._events.text(delta.text) if delta.kind == "text" else self._events.thinking(delta.text)

    def end(self, reply: Reply) -> bytes:
        if self._has_deltas:
            return self._events.end(stop_reason(reply), reply.usage)
        # Without the first event, which the client already has.
        return write_message_stream(reply, name=self._name, model=self._request.model).partition(b"\n\n")[2]
