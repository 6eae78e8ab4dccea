"""Read the requests that Claude Code records in its session files: system prompt, tools, sampling and messages.

`api-request-shape` has system prompt and tools, `api-request-blob` a message, and `api-request` refers to both by hash.
Replies name their request by `requestRef`. Messages that repeat lines of the conversation are not recorded, so only the
first requests of conversations are complete.
"""

from typing import Any, NamedTuple

from apps.gym.traces.items import Item, Tool, as_object
from apps.gym.wires.messages_request import BadMessages, MessagesRequest, read_messages_request

Line = dict[str, Any]

_KEYS = {"api-request": "id", "api-request-blob": "hash", "api-request-shape": "shapeHash"}
"""Kinds of lines, with the key that names each one."""
_ANY = {"role": "user", "content": "?"}


class RecordedRequest(NamedTuple):
    """`items` are None if messages of the request are missing."""

    items: list[Item] | None
    tools: list[Tool]
    sampling: dict[str, Any]


class RecordedRequests:
    """The requests of a session. Call `take` for every line, then `find` for the request of a reply."""

    def __init__(self) -> None:
        self._by_kind: dict[str, dict[str, Line]] = {kind: {} for kind in _KEYS}
        self._shapes: dict[str, MessagesRequest] = {}

    def take(self, line: Line) -> bool:
        """Store a line, and return True if it records a request or a part of one."""
        kind = str(line.get("type"))
        key = _KEYS.get(kind)
        if key is None or not isinstance(line.get(key), str):
            return False
        self._by_kind[kind][line[key]] = line
        return True

    def find(self, name: object) -> RecordedRequest | None:
        """Return a request, or None if it is not recorded or invalid."""
        given = self._by_kind["api-request"].get(str(name))
        if given is None:
            return None
        try:
            shape = self._shape(str(given.get("shapeHash")))
            sampling = read_messages_request({**as_object(given.get("params")), "messages": [_ANY]}).sampling
            messages = [] if given.get("base") else self._messages(given.get("tail"))
            items = read_messages_request({"messages": messages}).items if messages else None
        except BadMessages:
            return None
        return RecordedRequest([*shape.items[:-1], *items] if items else None, shape.tools, sampling)

    def _messages(self, hashes: object) -> list[Any]:
        """Return the messages, or none if one is missing."""
        found = [
            self._by_kind["api-request-blob"].get(str(one)) for one in (hashes if isinstance(hashes, list) else [])
        ]
        return [line.get("message") for line in found if line] if all(found) else []

    def _shape(self, name: str) -> MessagesRequest:
        """Return system prompt and tools, as a request whose last item has no meaning."""
        if name not in self._shapes:
            shape = as_object(as_object(self._by_kind["api-request-shape"].get(name)).get("shape"))
            body: dict[str, Any] = {key: shape[key] for key in ("system", "tools") if key in shape}
            self._shapes[name] = read_messages_request({**body, "messages": [_ANY]})
        return self._shapes[name]
