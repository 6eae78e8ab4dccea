"""Find the parent of a captured call when it arrives: the call whose conversation its request continues.

The parent is the completed call with the longest conversation (request and reply) that is a prefix of the request.
Items are compared by canonical_items, as a chain of hashes, so a search takes time linear in the request and keeps no
copies. The tools do not matter: a continued conversation may offer others.

- A request equal to an earlier one, with equal tools, is a retry. It gets the place of the earlier call.
- Several calls may have identical conversations. Then the latest is taken, of the same thread if possible. If
  there were several to choose from, the place is marked ambiguous.
- The first child continues the lineage of its parent. Further children, and children on another thread, fork a new one,
  unless they repeat a later reply of that lineage, or the client names the same thread: then it edited the history.
- The text beside tool calls may be missing, and numbers in the system prompt may differ. Notes in `edited` say so.
- A client may declare the name and the role of a conversation. Then only its own calls are parents.
- A call without parent is a root, see apps.gym.traces.root_reasons.
- If the client names the previous call, that call is the parent without a search. If the system prompt changed since,
  the request is a root that is `rewritten`.
- If the items of a root changed on the way but its token IDs begin with all ids of an earlier call, that call becomes
  the parent when the root completes. Its items must match in number, type and role.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from apps.gym.traces.call_records import NOTHING, CallRecord, Declared, Place
from apps.gym.traces.canonical_items import (
    SHORTEST_TEXT,
    Prefixes,
    bare_text,
    chain,
    digest_of,
    has_digest,
    hash_prefixes,
    item_digest,
)
from apps.gym.traces.history_edits import Openings, describe_edits
from apps.gym.traces.items import Item, Tool, is_by_model, item_type
from apps.gym.traces.root_reasons import RootRules
from apps.gym.traces.tokens import TokenCapture


class ParentFinder:
    """The calls of one attempt so far, as hashes. `tools` are the tools of the session.

    Each call of `place_request` must be followed by `complete` or `abandon`.
    """

    def __init__(self, tools: Sequence[Tool] = ()) -> None:
        self._session_tools = digest_of(list(tools))
        self._last = 0
        self._lineages = 0
        self._calls: dict[int, CallRecord] = {}
        self._requests: dict[bytes, int] = {}
        self._conversations: defaultdict[bytes, list[int]] = defaultdict(list)
        self._bare: defaultdict[bytes, list[int]] = defaultdict(list)
        """Conversations without the text beside the last tool calls, which some clients drop."""
        self._openings = Openings()
        self._tips: dict[int, _Tip] = {}
        self._roots = RootRules(self._calls)
        self._tokens = _TokenPrefixes()
        self._threads = {"": 0}

    def place_request(
        self,
        items: Sequence[Item],
        tools: Sequence[Tool],
        hint: str = "",
        *,
        call: int = 0,
        previous: int = 0,
        declared: Declared = NOTHING,
    ) -> Place:
        """Return the place of a request. `hint` is the client's id of the thread, empty if it sends none.

        If it is `declared` as a conversation, only calls of the same one are parents.

        `call` is its number, by default the next one. `previous` is the call that the client names as the previous one.
        """
        self._last = call or self._last + 1
        prefixes, offered = hash_prefixes(items), digest_of(list(tools))
        named = [declared.role, hint] if declared.role else []
        key = digest_of([prefixes.opening.hex(), prefixes.hashes[-1].hex(), offered.hex(), previous, *named])
        twin = self._requests.get(key, 0)
        opening, stamped = self._openings.find(items, prefixes)
        record = CallRecord(opening=opening, tools=offered, hint=hint, request=key, body=prefixes, declared=declared)
        if twin:
            place: Place | None = self._repeat(twin, items, record)
        else:
            place = self._after(previous, items, record) if previous in self._calls else self._search(items, record)
        if place is None:
            place = self._root(items, record)
        self._requests.setdefault(key, self._last)
        self._calls[self._last] = record
        before = self._calls[place.parent].tools if place.parent else self._session_tools
        record.place = msgspec.structs.replace(
            place,
            tools_in=list(tools) if offered != before else None,
            thread=self._threads.setdefault(hint, len(self._threads)),
            previous=previous,
            declared=declared.role,
            edited=[*(stamped if place.parent else []), *place.edited],
        )
        record.lineage = place.lineage
        return record.place

    def complete(self, call: int, reply: Sequence[Item], tokens: TokenCapture | None = None) -> Place:
        """Register the reply. Return the place of the call, which has changed if its tokens revealed a parent."""
        record = self._calls[call]
        assert record.place is not None and record.body is not None
        prefixes = record.body
        if tokens is not None and not record.place.parent and not record.place.retry_of:
            self._move(record, self._tokens.find(tokens.prompt))
        kept = [(item_type(item), digest) for item in reply if (digest := item_digest(item)) is not None]
        said = [digest for _, digest in kept]
        hashes = reduce(chain, said, prefixes.hashes[-1])
        record.depth = len(prefixes.digests) + len(said)
        record.size = record.place.seen + len(reply)
        record.shape = _shape(reply, record.shape)
        self._conversations[record.opening + hashes].append(call)
        bare = [digest for kind, digest in kept if kind != "message"]
        if 0 < len(bare) < len(said):
            self._bare[record.opening + reduce(chain, bare, prefixes.hashes[-1])].append(call)
        bare_texts = frozenset(text for item in reply if len(text := bare_text(item)) >= SHORTEST_TEXT)
        self._tips[record.lineage] = _Tip([*prefixes.digests, *said], frozenset(said), bare_texts)
        self._roots.complete(call, record, hashes, [*prefixes.digests[record.matched :], *said], reply)
        if tokens is not None and tokens.generation:
            self._tokens.add(call, tokens.ids)
        record.body = None
        place, record.place = record.place, None
        return place

    def abandon(self, call: int) -> None:
        """Forget a call that ends without a stored reply. Its number is not reused."""
        record = self._calls.pop(call)
        assert record.place is not None
        if self._requests.get(record.request) == call:
            del self._requests[record.request]
        if record.continues in self._calls:
            self._calls[record.continues].continued = False
        if record.lineage == self._lineages and not any(one.lineage == record.lineage for one in self._calls.values()):
            self._lineages -= 1

    def _repeat(self, twin: int, items: Sequence[Item], record: CallRecord) -> Place:
        earlier = self._calls[twin]
        assert record.body is not None
        record.matched, record.retry_of, record.shape = earlier.matched, twin, _shape(items)
        record.parent, record.kept = earlier.parent, earlier.kept
        record.root_reason, record.spawned_by = earlier.root_reason, earlier.spawned_by
        return Place(
            call=self._last,
            parent=record.parent,
            kept=record.kept,
            items_in=_rest(items, record.body, record.matched) if record.parent else list(items),
            lineage=earlier.lineage,
            root_reason=record.root_reason,
            spawned_by=record.spawned_by,
            retry_of=twin,
        )

    def _search(self, items: Sequence[Item], record: CallRecord) -> Place | None:
        """Return the place after the longest known conversation, or None."""
        assert record.body is not None
        for count in range(len(record.body.digests), 0, -1):
            key = record.opening + record.body.hashes[count]
            edited = []
            found = self._conversations.get(key)
            if not found and (found := self._bare.get(key)):
                edited.append("dropped the text beside tool calls")
            if found := self._choose(found or [], record):
                return self._child(found[-1], count, items, record, edited, ambiguous=len(found) > 1)
        return None

    def _choose(self, found: list[int], record: CallRecord) -> list[int]:
        """Return the calls that a record may continue: of its own conversation, or an undeclared one of its thread."""
        same = [one for one in found if self._calls[one].hint == record.hint]
        if record.declared.role:
            return [one for one in same if record.hint or self._calls[one].declared.role == record.declared.role]
        return same or [one for one in found if not self._calls[one].declared.role]

    def _after(self, previous: int, items: Sequence[Item], record: CallRecord) -> Place:
        """Return the place after the call that the client names."""
        before, body = self._calls[previous], record.body
        assert body is not None
        end = body.hashes[before.depth] if before.depth < len(body.hashes) else b""
        if previous in self._conversations.get(record.opening + end, ()):
            return self._child(previous, before.depth, items, record, [])
        record.root_reason, record.shape = "rewritten", _shape(items)
        return Place(
            call=self._last,
            items_in=list(items),
            lineage=self._lineage_after(previous, items, record)[0],
            root_reason="rewritten",
            edited=["changed the system prompt"],
        )

    def _child(
        self,
        parent: int,
        count: int,
        items: Sequence[Item],
        record: CallRecord,
        edited: list[str],
        *,
        ambiguous: bool = False,
    ) -> Place:
        assert record.body is not None
        before = self._calls[parent]
        record.matched, record.parent, record.kept = count, parent, before.size
        record.shape = _shape(items)
        lineage, edits = self._lineage_after(parent, items, record)
        return Place(
            call=self._last,
            parent=parent,
            kept=before.size,
            items_in=_rest(items, record.body, count),
            lineage=lineage,
            ambiguous=ambiguous,
            edited=[*edited, *edits],
        )

    def _lineage_after(self, parent: int, items: Sequence[Item], record: CallRecord) -> tuple[int, list[str]]:
        """Return the lineage of a child, and what it edited in the conversation of its parent's lineage.

        It is the parent's lineage for the first child of the parent and its retries, for a request that repeats a
        later reply of that lineage, and for a request on the same thread if no call of that lineage is running.
        Otherwise it is a new one.
        """
        before = self._calls[parent]
        step = before.retry_of or parent
        other_thread = bool(record.hint and before.hint and record.hint != before.hint)
        first = self._calls.get(step, before)
        if not (first.continued or other_thread):
            first.continued = True
            record.continues = step if step in self._calls else parent
            return before.lineage, []
        tip = self._tips.get(before.lineage)
        assert record.body is not None
        running = (one for one in self._calls.values() if one.in_flight and one.lineage == before.lineage)
        repeats = tip and (
            not tip.said.isdisjoint(record.body.digests[record.matched :])
            or any(is_by_model(item) and bare_text(item) in tip.bare for item in items)
        )
        if other_thread or not tip or not (repeats or (record.hint and not any(running))):
            return self._next_lineage(), []
        return before.lineage, describe_edits(tip.digests, record.body.digests)

    def _next_lineage(self) -> int:
        self._lineages += 1
        return self._lineages

    def _root(self, items: Sequence[Item], record: CallRecord) -> Place:
        reason, lineage, spawned_by = (
            self._roots.read_declared(items, record) if record.declared.role else self._roots.explain(items, record)
        )
        record.root_reason, record.spawned_by = reason, spawned_by
        record.shape = _shape(items)
        assert record.body is not None
        tip = self._tips.get(lineage)
        return Place(
            call=self._last,
            items_in=list(items),
            lineage=lineage or self._next_lineage(),
            root_reason=reason,
            spawned_by=spawned_by,
            edited=describe_edits(tip.digests, record.body.digests) if tip else [],
        )

    def _move(self, record: CallRecord, parent: int) -> None:
        """Make a root the child of the call whose token IDs its prompt begins with, if their items match."""
        before, place = self._calls.get(parent), record.place
        assert place is not None and record.body is not None
        if before is None or before.depth >= len(record.body.ends):
            return
        end = record.body.ends[before.depth]
        if _shape(place.items_in[:end]) != before.shape:
            return
        record.matched, record.parent, record.kept = before.depth, parent, before.size
        record.root_reason, record.spawned_by = "", 0
        record.lineage, edited = self._lineage_after(parent, place.items_in, record)
        record.place = msgspec.structs.replace(
            place,
            parent=parent,
            kept=before.size,
            items_in=_rest(place.items_in, record.body, before.depth),
            lineage=record.lineage,
            root_reason="",
            spawned_by=0,
            edited=edited,
        )


class _Tip(NamedTuple):
    """The latest conversation of a lineage: the digests of all items, and digests and bare texts of its last reply."""

    digests: list[bytes]
    said: frozenset[bytes]
    bare: frozenset[str]


def _rest(items: Sequence[Item], prefixes: Prefixes, count: int) -> list[Item]:
    """Return the items after the first `count`, without reasoning and empty texts that belong to the parent's reply."""
    start = prefixes.ends[count]
    while start < len(items) and not has_digest(items[start]):
        start += 1
    return list(items[start:])


def _shape(items: Sequence[Item], before: bytes = b"") -> bytes:
    """Return a hash of the types and roles of the items, continuing `before`."""
    for item in items:
        if has_digest(item):
            before = blake2b(before + f"{item_type(item)} {item.get('role')}".encode(), digest_size=16).digest()
    return before


class _TokenPrefixes:
    """Find the call whose ids are the longest prefix of a prompt. Keeps hashes, not ids."""

    def __init__(self) -> None:
        self._by_length: dict[int, dict[bytes, int]] = {}

    def add(self, call: int, ids: bytes) -> None:
        self._by_length.setdefault(len(ids), {})[blake2b(ids, digest_size=16).digest()] = call

    def find(self, prompt: bytes) -> int:
        """Return the number of the call, or 0."""
        found, done, running = 0, 0, blake2b(digest_size=16)
        for length in sorted(self._by_length):
            if length > len(prompt):
                break
            running.update(prompt[done:length])
            done = length
            found = self._by_length[length].get(running.digest(), found)
        return found
