"""The Messages wire: join the events of a streamed reply, and write a reply as events."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

from apps.gym.traces.items import UNPARSED, TokenUsage, as_object, encode_json, item_type, read_json
from apps.gym.wires.chat_reply import ReplyInterrupted, ReplyMalformed
from apps.gym.wires.chat_stream import read_event
from apps.gym.wires.messages_content import assistant_blocks, write_call_id
from apps.gym.wires.messages_reply import failed_reply, stop_reason, write_messages_usage
from apps.gym.wires.protocol import Reply

# Fields of a block by the types of its deltas.
_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


# ── events → a message ───────────────────────────────────────────────────────────────────────────────────────────────


def join_messages_stream(body: bytes) -> bytes:
    """Return the body of the message that a stream contains.

    Raises ReplyMalformed for an invalid or interrupted stream, and ReplyFailed for an error in it.
    """
    joined = JoinedMessage()
    for event in _events(body):
        joined.add(event)
    return joined.body()


class JoinedMessage:
    """Joins the events of one stream as they arrive. Pieces are collected and joined once."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._usage: dict[str, Any] = {}
        self._stop: dict[str, Any] | None = None

    def add(self, event: dict[str, Any]) -> None:
        """Add an event. Unknown events are ignored. Raises ReplyFailed for an error event."""
        match event.get("type"):
            case "message_start":
                self._message = as_object(event.get("message"))
                self._add_usage(self._message.get("usage"))
            case "content_block_start":
                self._blocks[_index(event)] = as_object(event.get("content_block"))
            case "content_block_delta":
                self._add_delta(_index(event), as_object(event.get("delta")))
            case "message_delta":
                self._stop = {**(self._stop or {}), **as_object(event.get("delta"))}
                self._add_usage(event.get("usage"))
            case "error":
                raise failed_reply(event.get("error"))

    def body(self) -> bytes:
        """Return the message as if it had not been streamed. Raises ReplyMalformed if the stream was interrupted."""
        if self._stop is None:
            raise ReplyInterrupted("The endpoint's stream ended before its reply did.")
        blocks = [self._joined(index, block) for index, block in self._blocks.items()]
        try:
            return orjson.dumps({**self._message, **self._stop, "content": blocks, "usage": self._usage})
        except (orjson.JSONEncodeError, TypeError) as error:
            raise ReplyMalformed(f"The endpoint's stream cannot be joined: {error}") from None

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        field = _DELTAS.get(str(delta.get("type")))
        piece = delta.get(field) if field else None
        if index not in self._blocks:
            raise ReplyMalformed("The endpoint's stream has a delta without a block.")
        if field and isinstance(piece, str):
            self._pieces.setdefault(index, {}).setdefault(field, []).append(piece)

    def _add_usage(self, usage: Any) -> None:
        # The counts of later events are cumulative.
        self._usage |= {name: count for name, count in as_object(usage).items() if count is not None}

    def _joined(self, index: int, block: dict[str, Any]) -> dict[str, Any]:
        block = dict(block)
        for field, pieces in self._pieces.get(index, {}).items():
            text = "".join(pieces)
            if field != "partial_json":
                begun = block.get(field)
                block[field] = begun + text if isinstance(begun, str) else text
            elif isinstance(read_json(text), dict):
                block["input"] = orjson.Fragment(text)  # with the model's own characters
            elif text.strip():
                block["input"] = {UNPARSED: text}  # cut off at max_tokens
        return block


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise ReplyMalformed("A block in the endpoint's stream has no index.")
    return index


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.splitlines():
        if line.startswith(b"data:"):  # others are comments, ids and event names
            yield read_event(line.removeprefix(b"data:").strip())


# ── a reply → events ─────────────────────────────────────────────────────────────────────────────────────────────────


class MessageEvents:
    """Writes a reply as server-sent events, piece by piece: each method returns the bytes to send next.

    Call `start`, then the pieces in order, then `end`. A piece of another kind closes the open block.
    """

    def __init__(self, *, name: str, model: str) -> None:
        self._head = {"id": name, "type": "message", "role": "assistant", "model": model, "content": []}
        self._open = ""
        self._index = -1
        self._ids: Counter[str] = Counter()

    def start(self, usage: TokenUsage | None = None) -> bytes:
        """Return the first event, with the counts that are known before the reply."""
        blank = {"stop_reason": None, "stop_sequence": None, "usage": write_messages_usage(usage or {})}
        return _event("message_start", message=self._head | blank)

    def text(self, piece: str) -> bytes:
        opened = self._continue("text", {"type": "text", "text": ""})
        return opened + self._delta("text_delta", piece)

    def thinking(self, piece: str) -> bytes:
        opened = self._continue("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        return opened + self._delta("thinking_delta", piece)

    def signature(self, signature: str) -> bytes:
        """Return the signature of the open thinking block, or of an empty one."""
        opened = self._continue("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        return opened + self._delta("signature_delta", signature)

    def redacted_thinking(self, data: str) -> bytes:
        return self.close_block() + self._begin("redacted_thinking", {"type": "redacted_thinking", "data": data})

    def call(self, call_id: str, tool: str) -> bytes:
        """Return the start of a call; its arguments follow."""
        written = write_call_id(call_id, self._ids[call_id])
        self._ids[call_id] += 1
        block = {"type": "tool_use", "id": written, "name": tool, "input": {}}
        return self.close_block() + self._begin("tool_use", block)

    def arguments(self, piece: str) -> bytes:
        return self._delta("input_json_delta", piece)

    def close_block(self) -> bytes:
        """Return the end of the open block, if there is one."""
        if not self._open:
            return b""
        self._open = ""
        return _event("content_block_stop", index=self._index)

    def end(self, reason: str, usage: TokenUsage) -> bytes:
        """Return the last events. `reason` is a stop reason of the API."""
        delta = {"stop_reason": reason, "stop_sequence": None}
        last = _event("message_delta", delta=delta, usage=write_messages_usage(usage))
        return self.close_block() + last + _event("message_stop")

    def _continue(self, kind: str, block: dict[str, Any]) -> bytes:
        return b"" if self._open == kind else self.close_block() + self._begin(kind, block)

    def _begin(self, kind: str, block: dict[str, Any]) -> bytes:
        self._open, self._index = kind, self._index + 1
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, piece: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, _DELTAS[kind]: piece})


def write_message_stream(reply: Reply, *, name: str, model: str) -> bytes:
    """Return the events of a whole reply, with one delta for each block. `name` is the id of the message."""
    events = MessageEvents(name=name, model=model)
    written = [events.start(reply.usage)]
    for item in reply.items:
        if item_type(item) == "function_call":
            written.append(events.call(item.get("call_id") or item.get("id") or "", item.get("name", "")))
            written.append(events.arguments(str(item.get("arguments") or "{}")))
            continue
        for block in assistant_blocks([item], unsigned=True):
            written.append(events.close_block())
            match block["type"]:
                case "text":
                    written.append(events.text(block["text"]))
                case "thinking":
                    written.append(events.thinking(block["thinking"]))
                    written.append(events.signature(block["signature"]))
                case "redacted_thinking":
                    written.append(events.redacted_thinking(block["data"]))
    written.append(events.end(stop_reason(reply), reply.usage))
    return b"".join(written)


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + encode_json({"type": kind, **fields}) + b"\n\n"
