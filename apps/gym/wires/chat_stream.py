"""Join a streamed chat reply (server-sent events) into the body of an unstreamed one."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from apps.gym.json_constants import null_constants
from apps.gym.traces.items import as_object
from apps.gym.wires.chat_reply import ReplyInterrupted, ReplyMalformed

EVENT_STREAM = "text/event-stream"
_THOUGHTS = ("reasoning", "reasoning_content")
_TEXTS = ("content", "refusal", *_THOUGHTS)
_ENVELOPE = ("id", "model", "usage", "prompt_token_ids")


def join_chat_stream(body: bytes) -> bytes:
    """Return the joined chunks of the first choice. Raises ReplyMalformed for an invalid or interrupted stream."""
    stream = ChatStreamReader()
    stream.feed(body)
    return stream.joined()


class ChatStreamReader:
    """Feed it a stream as it arrives. It joins the chunks of the first choice.

    `report` receives each delta of the first choice that is not empty. `size` counts the bytes received.
    """

    def __init__(self, report: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.size = 0
        self._report = report
        self._parts: list[bytes] = []  # of an incomplete line
        self._envelope: dict[str, Any] = {}
        self._choice = _Choice()
        self._is_done = False
        self._problem: ReplyMalformed | None = None

    def feed(self, data: bytes) -> None:
        """Read the complete lines. Does not raise; `joined` does."""
        self.size += len(data)
        end = data.rfind(b"\n") + 1
        if not end:
            self._parts.append(data)
            return
        lines = b"".join([*self._parts, data[:end]])
        self._parts = [data[end:]] if end < len(data) else []
        self._read(lines)

    def joined(self) -> bytes:
        """Return the joined reply. Raises ReplyMalformed for an invalid or interrupted stream."""
        self._report = None  # This may run in another thread.
        self._read(b"".join(self._parts))
        if self._problem is not None:
            raise self._problem
        if self._choice.finish_reason is None:
            raise ReplyInterrupted("The endpoint's stream ended before its reply did.")
        try:
            return orjson.dumps({**self._envelope, "choices": [self._choice.joined()]})
        except orjson.JSONEncodeError as error:
            # orjson can read JSON that is nested too deeply for it to write.
            raise ReplyMalformed(f"The endpoint's stream cannot be joined: {error}") from None

    def _read(self, lines: bytes) -> None:
        if self._is_done:
            return
        try:
            for line in lines.splitlines():
                if not line.startswith(b"data:"):
                    continue  # comments, ids and event names
                given = line[5:].strip()
                if given == b"[DONE]":
                    self._is_done = True
                    return
                self._add(read_event(given))
        except ReplyMalformed as problem:
            self._problem, self._is_done = problem, True

    def _add(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error"):
            raise ReplyInterrupted(f"The endpoint interrupted its reply: {_problem(chunk['error'])}")
        for key in _ENVELOPE:
            if chunk.get(key) is not None:
                self._envelope[key] = chunk[key]
        for part in _as_list(chunk.get("choices"), "choices"):
            if not isinstance(part, dict):
                raise ReplyMalformed("A choice in the endpoint's stream is not an object.")
            if part.get("index") in (0, None):
                # First the report: it gives ids to calls without one.
                if self._report is not None and isinstance(delta := part.get("delta"), dict) and delta:
                    self._report(delta)
                self._choice.add(part)


class _Call:
    """One call of a stream: the first delta names it, the others carry pieces of its arguments."""

    __slots__ = ("arguments", "call_id", "name")

    def __init__(self) -> None:
        self.call_id: Any = None
        self.name: list[str] = []
        self.arguments: list[str] = []

    def add(self, function: dict[str, Any]) -> None:
        name, arguments = function.get("name"), function.get("arguments")
        if name:
            if not isinstance(name, str):
                raise ReplyMalformed("A call in the endpoint's stream has a name that is not a text.")
            self.name.append(name)
        if arguments:
            # Some servers send an object instead of text.
            self.arguments.append(arguments if isinstance(arguments, str) else _as_json(arguments))

    def joined(self) -> dict[str, Any]:
        function = {"name": "".join(self.name), "arguments": "".join(self.arguments)}
        return {"id": self.call_id, "type": "function", "function": function}


class _Choice:
    """The joined deltas of one choice. Pieces are collected and joined once, because a stream may have many."""

    def __init__(self) -> None:
        self.finish_reason: Any = None
        self._texts: dict[str, list[str]] = {}
        self._thoughts: dict[str, list[str]] = {}  # in LiteLLM's `provider_specific_fields`
        self._details: list[str] = []  # of reasoning; servers may also send it in `reasoning`
        self._calls: dict[object, _Call] = {}
        self._legacy: _Call | None = None
        self._token_ids: list[Any] = []
        self._logprobs: list[Any] = []
        self._has_odd_tokens = False

    def add(self, part: dict[str, Any]) -> None:
        delta = part.get("delta")
        if delta:
            self._add_delta(_as_object(delta, "delta"))
        self.finish_reason = part.get("finish_reason") or self.finish_reason
        if ids := part.get("token_ids") or as_object(part.get("provider_specific_fields")).get("token_ids"):
            self._add_tokens(self._token_ids, ids)
        if part.get("logprobs"):
            logprobs = part["logprobs"]
            self._add_tokens(self._logprobs, logprobs.get("content") or [] if isinstance(logprobs, dict) else None)

    def joined(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant"}
        message |= {name: "".join(pieces) for name, pieces in self._texts.items()}
        if self._thoughts:
            pieces_of = self._thoughts.items()
            message["provider_specific_fields"] = {name: "".join(pieces) for name, pieces in pieces_of}
        if self._details:
            message["reasoning_details"] = "".join(self._details)
        if self._calls:
            message["tool_calls"] = [call.joined() for call in self._calls.values()]
        if self._legacy is not None:
            message["function_call"] = self._legacy.joined()["function"]
        choice = {"message": message, "finish_reason": self.finish_reason}
        if self._has_odd_tokens:
            # The reader treats these as unreadable tokens: the reply gets a note and is not lost.
            return {**choice, "token_ids": "malformed"}
        if self._token_ids:
            choice["token_ids"] = self._token_ids
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        return choice

    def _add_delta(self, delta: dict[str, Any]) -> None:
        for name, given in delta.items():
            if name in _TEXTS:
                _add_text(self._texts, name, given)
            elif name == "tool_calls":
                for call in _as_list(given, "tool_calls"):
                    self._add_call(_as_object(call, "call"))
            elif name == "provider_specific_fields" and isinstance(given, dict):
                for key in _THOUGHTS:
                    _add_text(self._thoughts, key, given.get(key))
            elif name == "reasoning_details" and isinstance(given, list):
                self._details.extend(_texts_of(given))
            elif name == "function_call" and given:
                self._legacy = self._legacy or _Call()
                self._legacy.add(_as_object(given, "function call"))

    def _add_call(self, delta: dict[str, Any]) -> None:
        call = self._call_of(delta)
        call.call_id = delta.get("id") or call.call_id
        function = delta.get("function")
        if function:
            call.add(_as_object(function, "function"))

    def _call_of(self, delta: dict[str, Any]) -> _Call:
        """Return the call of a delta. `index` only tells calls apart. A large index does not create empty calls."""
        index = delta.get("index")
        if isinstance(index, int | str):
            return self._calls.setdefault(index, _Call())
        function = delta.get("function")
        begins = delta.get("id") or (isinstance(function, dict) and function.get("name"))
        if self._calls and not begins:
            return next(reversed(self._calls.values()))
        # A tuple, which cannot collide with an index sent by a server.
        return self._calls.setdefault((len(self._calls),), _Call())

    def _add_tokens(self, gathered: list[Any], given: object) -> None:
        if isinstance(given, list):
            gathered.extend(given)
        else:
            self._has_odd_tokens = True


def _add_text(texts: dict[str, list[str]], name: str, given: Any) -> None:
    if isinstance(given, str):
        texts.setdefault(name, []).append(given)
    elif isinstance(given, list):
        texts.setdefault(name, []).extend(_texts_of(given))


def read_event(data: bytes) -> dict[str, Any]:
    """Return the object of an event. Raises ReplyMalformed."""
    try:
        event = orjson.loads(null_constants(data))
    except orjson.JSONDecodeError as error:
        raise ReplyMalformed(f"An event of the endpoint's stream is not JSON: {error}") from None
    if not isinstance(event, dict):
        raise ReplyMalformed("An event of the endpoint's stream is not an object.")
    return event


def _as_list(given: Any, name: str) -> list[Any]:
    if not given:
        return []
    if not isinstance(given, list):
        raise ReplyMalformed(f"The {name} in a chunk of the endpoint's stream are not a list.")
    return given


def _as_object(given: Any, name: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ReplyMalformed(f"A {name} in the endpoint's stream is not an object.")
    return given


def _texts_of(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        texts = (part.get("text"), part.get("summary")) if isinstance(part, dict) else ()
        yield from (text for text in texts if isinstance(text, str))


def _problem(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else _as_json(error)


def _as_json(given: Any) -> str:
    try:
        return orjson.dumps(given).decode()
    except orjson.JSONEncodeError as error:
        raise ReplyMalformed(f"The endpoint's stream cannot be joined: {error}") from None
