"""Say why a captured call continues no earlier call.

Such a call is a root. If the client declares its conversation, that decides. Else the rules, in this order:

1. `first`: there was no root before, or this root offers tools and no earlier root did (a client may ask for a title
   first).
2. `rewritten`: the last message repeats that of an earlier call with the same system prompt, then its reply, or
   a line of the reply, and more text: a scratchpad that grows.
3. `subagent`: the client sends another thread id. Or a tool call contains a text of the root's messages, and the root
   has another system prompt or other tools than the caller, or the text is a whole argument. This does not hold if the
   root repeats the whole request of an earlier call, then a turn of the model: the client changed the reply.
4. `auxiliary`: the root offers no tools although another root did, and has at most two items besides the system prompt.
   A transcript in it may contain arguments of several calls, so rule 3 then needs one that contains the others.
5. `compaction` or `rewritten`: the root replaces a conversation with the same thread id. Or it replaces one with the
   same system prompt: the root repeats an item or quotes a reply, or the conversation waits for outputs of tool calls.
   Or the root extends a whole conversation whose system prompt changed. It is a compaction if the root has fewer items
   than the conversation, and does not repeat its whole last request. The root continues its lineage.
6. `subagent`: any other root, and every root that would replace a conversation with a call in flight.

Texts are compared by their first 64 lines of at least 16 characters.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence

from apps.gym.traces.call_records import CallRecord
from apps.gym.traces.canonical_items import digest_of, message_texts
from apps.gym.traces.events import RootReason
from apps.gym.traces.history_edits import Pads
from apps.gym.traces.items import Item, argument_texts, function_calls, is_by_model

LINE_CHARS = 16
LINES = 64
ARGUMENT_CHARS = 3
"""Shorter arguments are no evidence for a subagent."""
AUXILIARY_ITEMS = 2
ARGUMENTS_KEPT = 512 * 1024
LONGEST_ARGUMENT = 64 * 1024

_NO_TOOLS = digest_of([])


class RootRules:
    """Explains roots. `calls` are the calls so far by number; the caller adds to it."""

    def __init__(self, calls: dict[int, CallRecord]) -> None:
        self._calls = calls
        self._evidence: dict[bytes, int] = {}
        """The latest call with this item, or this line of its reply, by system prompt and digest."""
        self._bodies: dict[bytes, int] = {}
        """The latest call with this conversation, whatever its system prompt."""
        self._requests: dict[bytes, int] = {}
        """The latest call with this request."""
        self._asked: dict[bytes, int] = {}
        """The latest call with this argument, or one of its lines, in a tool call."""
        self._longest: Counter[int] = Counter()
        """Items of the longest conversation of each lineage."""
        self._held = 0
        self._arguments: deque[tuple[int, str]] = deque()
        """Arguments of tool calls, with their calls. Only long ones, and only the latest ARGUMENTS_KEPT characters."""
        self._pads = Pads()

    def explain(self, items: Sequence[Item], record: CallRecord) -> tuple[RootReason, int, int]:
        """Return the reason, the lineage that the root continues, and the call that spawned it; 0 for none."""
        roots = [one for one in self._calls.values() if not one.parent]
        offers = record.tools != _NO_TOOLS
        had_tools = any(one.tools != _NO_TOOLS for one in roots)
        if not roots or (offers and not had_tools):
            return "first", 0, 0
        assert record.body is not None
        pad = self._pads.find(items, record.opening)
        if pad and not self._calls[pad].in_flight:
            return "rewritten", self._calls[pad].lineage, 0
        threads = {one.hint: one.lineage for one in self._calls.values() if one.hint}
        same_thread = record.hint in threads
        is_short = had_tools and not offers and len(record.body.digests) <= AUXILIARY_ITEMS
        carried = max((self._bodies.get(one, 0) for one in record.body.hashes[1:]), default=0)
        extended = carried or self._extended(items, record)
        caller = 0 if same_thread or extended else self._caller(items, record, is_short=is_short)
        if caller or (threads and record.hint and not same_thread):
            return "subagent", 0, caller
        if is_short:
            return "auxiliary", 0, 0
        found = self._calls[extended].lineage if extended else self._replaced(items, record)
        lineage = threads[record.hint] if same_thread else found
        if not lineage or any(one.in_flight and one.lineage == lineage for one in self._calls.values()):
            return "subagent", 0, 0
        latest = max(number for number, one in self._calls.items() if one.lineage == lineage)
        is_shorter = extended != latest and len(record.body.digests) < self._longest[lineage]
        return "compaction" if is_shorter else "rewritten", lineage, 0

    def read_declared(self, items: Sequence[Item], record: CallRecord) -> tuple[RootReason, int, int]:
        """Return what the client declares of a root that is no continuation of its conversation."""
        assert record.body is not None
        role, parent = record.declared
        # Without a name, there is one main conversation, and each other root is a conversation of its own.
        own = [
            one
            for one in self._calls.values()
            if one.hint == record.hint and (record.hint or one.declared.role == "main")
        ]
        if own and (record.hint or role == "main"):
            lineage = own[-1].lineage
            is_shorter = len(record.body.digests) < self._longest[lineage] and not self._pads.find(items)
            return "compaction" if is_shorter else "rewritten", lineage, 0
        spawned_by = max((call for call, one in self._calls.items() if parent and one.hint == parent), default=0)
        reasons: dict[str, RootReason] = {"main": "first", "auxiliary": "auxiliary", "subagent": "subagent"}
        inferred: RootReason = "subagent" if spawned_by or self._calls else "first"
        return reasons.get(role, inferred), 0, spawned_by

    def complete(
        self, call: int, record: CallRecord, conversation: bytes, digests: list[bytes], reply: Sequence[Item]
    ) -> None:
        """Register a reply. `digests` are the digests of the items that its request and reply add."""
        lines = [line for item in reply for text in message_texts(item) for line in _lines(text)]
        for digest in [*digests, *lines]:
            self._evidence[record.opening + digest] = call
        self._bodies[conversation] = call
        if record.body is not None:
            self._requests[record.opening + record.body.hashes[-1]] = call
        calls = function_calls(list(reply))
        for value in (value for one in calls for value in argument_texts(one)):
            for digest in [*_whole(value), *_lines(value)]:
                self._asked[digest] = call
            if LINE_CHARS <= len(value) <= LONGEST_ARGUMENT:
                self._arguments.append((call, value.strip()))
                self._held += len(self._arguments[-1][1])
        while self._held > ARGUMENTS_KEPT:
            self._held -= len(self._arguments.popleft()[1])
        if record.place is not None and not record.place.parent:
            self._pads.add(call, record.opening, record.place.items_in, reply)
        record.calls_tools = bool(calls)
        self._longest[record.lineage] = max(self._longest[record.lineage], record.depth)

    def _extended(self, items: Sequence[Item], record: CallRecord) -> int:
        """Return the call whose request a root continues with a turn of the model that is not its reply, or 0."""
        body = record.body
        assert body is not None
        for count in range(len(body.digests) - 1, 0, -1):
            call = self._requests.get(record.opening + body.hashes[count], 0)
            if call and any(map(is_by_model, items[body.ends[count] : body.ends[count + 1]])):
                return call
        return 0

    def _caller(self, items: Sequence[Item], record: CallRecord, *, is_short: bool) -> int:
        """Return the call with a tool call that contains a text of the request, or 0."""
        for text in _texts(items):
            for digest in _whole(text):
                if call := self._asked.get(digest, 0):
                    return call
            for digest in _lines(text):
                call = self._asked.get(digest, 0)
                if self._is_other(call, record):
                    return call
        whole = "\n".join(_texts(items))
        found = [one for one in self._arguments if one[1] in whole and self._is_other(one[0], record)]
        caller = max((call for call, _ in found), default=0)
        own = "\n".join(text for call, text in found if call == caller)
        return 0 if is_short and any(text not in own for _, text in found) else caller

    def _is_other(self, call: int, record: CallRecord) -> bool:
        """Return True if a call has another system prompt or other tools."""
        caller = self._calls.get(call)
        return caller is not None and (caller.opening, caller.tools) != (record.opening, record.tools)

    def _replaced(self, items: Sequence[Item], record: CallRecord) -> int:
        """Return the lineage of the conversation that a root replaces, or 0."""
        assert record.body is not None
        lines = [line for text in _texts(items) for line in _lines(text)]
        known = [self._evidence.get(record.opening + one, 0) for one in (*record.body.digests, *lines)]
        latest = max((number for number, one in self._calls.items() if one.opening == record.opening), default=0)
        waiting = latest if latest and self._calls[latest].calls_tools else 0
        call = max(known, default=0) or waiting
        return self._calls[call].lineage if call and not self._calls[call].declared.role else 0


def _texts(items: Sequence[Item]) -> Iterator[str]:
    """Yield the texts of the request that no model wrote."""
    for item in items:
        if not is_by_model(item):
            yield from message_texts(item)


def _lines(text: str) -> list[bytes]:
    lines = (line.strip() for line in text[:65_536].splitlines())
    return [digest_of(line) for line in lines if len(line) >= LINE_CHARS][:LINES]


def _whole(text: str) -> list[bytes]:
    stripped = text.strip()
    return [digest_of(stripped)] if len(stripped) >= ARGUMENT_CHARS else []
