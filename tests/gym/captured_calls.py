"""Traces as the capturing endpoint writes them: requests arrive, replies complete, in any order."""

from hashlib import blake2b
from typing import Any, ClassVar

from apps.gym.traces.events import ModelCall, SessionOpened, TraceUnion
from apps.gym.traces.graph_tokens import TokenPacker
from apps.gym.traces.items import Item, Tool, message
from apps.gym.traces.parents import ParentFinder, Place
from apps.gym.traces.tokens import TokenCapture, capture_tokens

SYSTEM = message("system", "You are an agent that works on files.")
TOOL: Tool = {"type": "function", "name": "run", "description": "", "parameters": {"type": "object"}}


def said(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def asked(call_id: str, arguments: str = "{}", name: str = "run") -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def answered(call_id: str, output: str = "ok") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def ids_of(item: Item) -> list[int]:
    """Return four ids that only equal items share."""
    digest = blake2b(repr(sorted(item.items(), key=str)).encode(), digest_size=8).digest()
    return [int.from_bytes(digest[place : place + 2]) + 1 for place in range(0, 8, 2)]


def all_ids(items: list[Item]) -> list[int]:
    return [one for item in items for one in ids_of(item)]


def tokens_of(request: list[Item], reply: list[Item]) -> TokenCapture:
    sampled = all_ids(reply)
    return capture_tokens(all_ids(request), sampled, [-0.5] * len(sampled))


class Recorder:
    """Captures calls of one attempt. `events` are stored in the order in which the calls complete.

    `made` has all recorders of the running test.
    """

    made: ClassVar[list["Recorder"]] = []

    def __init__(self, tools: list[Tool] | None = None, *, with_tokens: bool = False, most: int = 1 << 22) -> None:
        tools = [TOOL] if tools is None else tools
        self.finder = ParentFinder(tools)
        self.packer = TokenPacker(most)
        self.events: list[TraceUnion] = [SessionOpened(environment="files", tools=tools)]
        self.with_tokens = with_tokens
        self._requests: dict[int, list[Item]] = {}
        self._arrived: dict[int, float] = {}
        self._now = 0.5
        self.made.append(self)

    @property
    def in_flight(self) -> bool:
        """Return True if a call that arrived has not completed, or was abandoned."""
        return len(self._arrived) >= len(self.events)

    def arrive(
        self, request: list[Item], tools: list[Tool] | None = None, hint: str = "", *, previous: int = 0
    ) -> Place:
        place = self.finder.place_request(request, [TOOL] if tools is None else tools, hint, previous=previous)
        self._requests[place.call] = request
        self._now += 0.5
        self._arrived[place.call] = self._now
        return place

    def complete(self, call: int, reply: list[Item], tokens: TokenCapture | None = None, **fields: Any) -> ModelCall:
        if tokens is None and self.with_tokens:
            tokens = tokens_of(self._requests[call], reply)
        place = self.finder.complete(call, reply, tokens)
        self._now += 0.5
        event = ModelCall(
            seen=place.seen,
            items=reply,
            tokens=self.packer.pack(call, place.parent, tokens),
            at=self._arrived[call],
            duration=self._now - self._arrived[call],
            **{name: getattr(place, name) for name in place.__struct_fields__},
            **fields,
        )
        self.events.append(event)
        return event

    def call(self, request: list[Item], reply: list[Item], **fields: Any) -> ModelCall:
        """Record a call that completes before anything else arrives."""
        place = self.arrive(
            request, fields.pop("tools", None), fields.pop("hint", ""), previous=fields.pop("previous", 0)
        )
        return self.complete(place.call, reply, **fields)
