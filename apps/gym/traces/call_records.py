"""The place of a captured call in its graph, and the record that the search for parents keeps."""

import msgspec

from apps.gym.traces.canonical_items import Prefixes
from apps.gym.traces.events import RootReason
from apps.gym.traces.items import Item, Tool


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a captured call in its graph. ModelCall has fields with the same names."""

    call: int
    parent: int = 0
    kept: int = 0
    items_in: list[Item]
    tools_in: list[Tool] | None = None
    lineage: int
    root_reason: RootReason = ""
    spawned_by: int = 0
    retry_of: int = 0
    ambiguous: bool = False
    thread: int | None = None
    edited: list[str] = []
    previous: int = 0

    @property
    def seen(self) -> int:
        """Return the number of items that the call answers."""
        return self.kept + len(self.items_in)


class CallRecord(msgspec.Struct, kw_only=True):
    """What the search for parents keeps of a captured call.

    `depth` counts the items of its conversation that have a digest, `size` all of them. `matched` counts the items with
    a digest that the request shares with its parent. `hint` is the client's id of the thread, `shape` a hash of the
    types and roles of its items.

    `place` and `body` are None after the call completed. `retry_of` is the call that it retries, `continues` the call
    whose lineage it continues, and `continued` is True if another call continues its lineage.
    """

    opening: bytes
    tools: bytes
    hint: str
    request: bytes
    body: Prefixes | None
    place: Place | None = None
    parent: int = 0
    kept: int = 0
    matched: int = 0
    depth: int = 0
    size: int = 0
    shape: bytes = b""
    lineage: int = 0
    root_reason: RootReason = ""
    spawned_by: int = 0
    retry_of: int = 0
    continues: int = 0
    continued: bool = False
    calls_tools: bool = False

    @property
    def in_flight(self) -> bool:
        return self.place is not None
