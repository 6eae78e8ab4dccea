"""Tokens of captured calls in a graph: packing and reading. graph_segments joins them into training sequences.

A call is packed against its nearest ancestor with tokens, which its packed tokens name.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from apps.gym.traces.events import ModelCall, TraceUnion
from apps.gym.traces.tokens import (
    MAX_BASE,
    TokenCapture,
    TokensUnreadable,
    drop_tokens,
    find_unusable,
    pack_tokens,
    read_base,
    repack_linear,
    unpack_tokens,
)

PACKER_BYTES = 4 * 1024 * 1024


class TokenPacker:
    """Packs the calls of one attempt as they complete.

    It keeps the ids of the most recently used calls, up to `max_bytes`. A call is packed against its nearest ancestor
    whose ids are kept, or whole if there is none.
    """

    def __init__(self, max_bytes: int = PACKER_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parents: dict[int, int] = {}
        self._ids: OrderedDict[int, bytes] = OrderedDict()
        self._held = 0

    def pack(self, call: int, parent: int, capture: TokenCapture | None) -> bytes | None:
        """Return the bytes to store for a call; None without tokens. Call it for every call as it completes."""
        self._parents[call] = parent
        if capture is None:
            return None
        base = parent
        while base and (base not in self._ids or base > MAX_BASE):
            base = self._parents.get(base, 0)
        before = self._ids.get(base, b"")
        if base:
            self._ids.move_to_end(base)
        self._ids[call] = capture.ids
        self._held += len(capture.ids)
        while self._held > self._max_bytes and len(self._ids) > 1:
            self._held -= len(self._ids.popitem(last=False)[1])
        return pack_tokens(capture, before=before, base=base)


class GraphTokens:
    """The tokens of the calls of a graph. `parent` returns the number of a call's parent, 0 for a root."""

    def __init__(self, calls: Mapping[int, ModelCall], parent: Callable[[int], int]) -> None:
        self._calls = calls
        self._parent = parent
        self._captures: dict[int, TokenCapture] = {}

    def base(self, call: int) -> int:
        """Return the call whose ids come before the ids of `call`; 0 for none. Raises TokensUnreadable."""
        stored = self._calls[call].tokens
        named = read_base(stored) if stored is not None else None
        if named is not None:
            return named
        ancestor = self._parent(call)
        while ancestor and self._calls[ancestor].tokens is None:
            ancestor = self._parent(ancestor)
        return ancestor

    def capture(self, call: int) -> TokenCapture:
        """Return the tokens of a call. Raises TokensUnreadable, also for a call without tokens."""
        wanted = [call]
        while wanted[-1] not in self._captures and (base := self._checked_base(wanted[-1])):
            wanted.append(base)
        before = b""
        for number in reversed(wanted):
            if number not in self._captures:
                self._captures[number] = unpack_tokens(self._stored(number), before=before)
            before = self._captures[number].ids
        return self._captures[call]

    def in_line(self, call: int, previous: int) -> bytes:
        """Return the tokens of a call packed for a line in which `previous` is the call with tokens before it.

        Unreadable tokens become empty bytes, so that readers of the line report them.
        """
        try:
            if self.base(call) == previous:
                return repack_linear(self._stored(call))
            return pack_tokens(self.capture(call), before=self.capture(previous).ids if previous else b"")
        except TokensUnreadable:
            return b""

    def _checked_base(self, call: int) -> int:
        base = self.base(call)
        if base >= call or (base and base not in self._calls):
            raise TokensUnreadable("the packed tokens refer to a call that is missing")
        return base

    def _stored(self, call: int) -> bytes:
        stored = self._calls[call].tokens
        if stored is None:
            raise TokensUnreadable("the packed tokens refer to a call without tokens")
        return stored


def leave_out_unusable(events: list[TraceUnion]) -> tuple[list[TraceUnion], dict[int, str]]:
    """Return the events without tokens that would not be stored today, and the reasons by position.

    GymWeb 0.2.0 also stored tokens with impossible log probabilities, and fewer tokens than the usage counts.
    """
    said = [one for one in events if isinstance(one, ModelCall)]
    # Rows of responses have the usage of the whole attempt at its last turn.
    is_shared = len(said) > 1 and not any(one.usage for one in said[:-1])
    packed = {place: one for place, one in enumerate(events) if isinstance(one, ModelCall) and one.tokens is not None}
    found = ((place, find_unusable(one.tokens or b"", {} if is_shared else one.usage)) for place, one in packed.items())
    notes = {place: note for place, note in found if note}
    if not notes:
        return events, {}
    calls = {one.call: one for one in events if isinstance(one, ModelCall) and one.call}
    tokens = GraphTokens(calls, lambda call: calls[call].parent if calls[call].parent in calls else 0)
    try:
        kept = list(events) if calls else drop_tokens(events, [events[place] for place in notes].__contains__)
        for place, one in packed.items() if calls else ():
            kept[place] = replace(one, tokens=pack_tokens(tokens.capture(one.call), before=b"", base=0))
    except TokensUnreadable:
        return events, {}  # Readers of the tokens raise it again.
    for place, note in notes.items():
        kept[place] = replace(kept[place], tokens=None, tokens_note=note)
    return kept, notes
