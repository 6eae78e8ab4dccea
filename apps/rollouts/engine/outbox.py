"""The worker's outbox: events and ends go to the database in batches, and wait for it when it is away."""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count, islice
from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from apps.accounts.disk_space import note_error
from apps.accounts.outage_log import RetryLog
from apps.gym.calls.memory_budget import MemoryBudget
from apps.gym.traces.events import TraceUnion, event_kind
from apps.policies.installation_redactor import current_redactor
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.recording import End, EventRow, record_batch, unstorable_end
from apps.rollouts.engine.trace_redaction import clean_end, clean_event

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.05
MAX_ENDS = 200
MAX_EVENTS = 2_000
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)

SHARE_OF_MEMORY = 2
"""Which part of the memory budget, here a half, events that wait to be stored may take before rollouts wait."""
EVENT_BYTES = 300
"""About what an event costs besides its payload."""

InDatabase = Callable[..., Awaitable[Any]]
"""Runs a function on the worker's database thread."""


class Outbox:
    """Keeps what rollouts yield until stored; while the database fails, `trouble` says how and nothing is dropped."""

    def __init__(
        self, *, in_database: InDatabase, changed: Callable[[set[int]], None], memory: MemoryBudget | None = None
    ) -> None:
        self._memory = memory or MemoryBudget()
        self._in_database = in_database
        self._changed = changed
        self._events: list[EventRow] = []
        self._sizes: list[int] = []
        self._ends: dict[tuple[int, int], End] = {}
        self._seqs: dict[tuple[int, int], int] = {}
        self._wake = asyncio.Event()
        self._redactions: dict[tuple[int, int], dict[str, int]] = {}
        self._stopping = False
        self._touched: set[int] = set()
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self.trouble = ""
        self._log = RetryLog("storing results")
        self.unstored: Counter[int] = Counter()
        """Ends that wait, by collection."""

    def keep_event(self, claim: Claim, event: TraceUnion) -> int:
        """Queue the event for the database; gives the bytes of memory that it takes."""
        key = (claim.rollout_id, claim.attempt)
        seq = self._seqs.get(key, 0)
        self._seqs[key] = seq + 1
        before = self._redactions.get(key)
        payload, tokens, redactions = clean_event(event, current_redactor(), before)
        if redactions is not before and redactions:
            self._redactions[key] = redactions
        row = (*key, seq, event_kind(event), payload, tokens)
        self._events.append(row)
        self._touched.add(claim.collection_id)
        size = _size(row)
        self._sizes.append(size)
        self._bytes += size
        self._memory.add(size)
        if self.is_full:
            self._room.clear()
        return size

    async def wait_for_room(self) -> None:
        """Returns at once unless the buffer is full: then when the database has taken enough of it."""
        if self.is_full:
            await self._room.wait()

    def keep_end(self, end: End) -> None:
        """The first end of an attempt counts; what comes after it was too late."""
        key = (end.id, end.attempt)
        self._seqs.pop(key, None)
        redactions = self._redactions.pop(key, {})
        if key not in self._ends:
            self._ends[key] = clean_end(end, current_redactor(), redactions)
            self.unstored[end.collection] += 1
        if len(self._ends) >= MAX_ENDS:
            self._wake.set()

    def forget(self, claim: Claim) -> None:
        """Drop the bookkeeping of a rollout that ends without an end of ours."""
        self._seqs.pop((claim.rollout_id, claim.attempt), None)
        self._redactions.pop((claim.rollout_id, claim.attempt), None)

    @property
    def backlog(self) -> int:
        return len(self._ends)

    @property
    def is_full(self) -> bool:
        return self._bytes * SHARE_OF_MEMORY > self._memory.limit

    def waiting_ids(self) -> set[int]:
        """The rollouts that have ended and are not stored yet."""
        return {rollout_id for rollout_id, _ in self._ends}

    async def run(self) -> None:
        """Flush until stopped, and then until nothing is left."""
        while not (self._stopping and not self._events and not self._ends):
            if not self._stopping:
                await self._nap(FLUSH_SECONDS)
            await self._flush()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    async def _flush(self) -> None:
        """One batch. Events go first, in the same transaction, so that an ended row has its whole trace."""
        if not self._events and not self._ends:
            return
        ends = list(islice(self._ends.values(), MAX_ENDS))
        # A copy: rollouts go on adding while the database thread reads.
        events = self._events[:] if ends else self._events[:MAX_EVENTS]
        try:
            await self._store(events, ends)
        except Exception:
            logger.exception("a batch cannot be stored as it is: storing its %d ends one by one", len(ends))
            await self._store_singly(events, ends)
        del self._events[: len(events)]
        # Not measured again: SQLite's driver enlarges texts that are not ASCII when it reads them.
        stored = sum(self._sizes[: len(events)])
        del self._sizes[: len(events)]
        self._bytes -= stored
        self._memory.give_back(stored)
        if not self.is_full:
            self._room.set()
        for end in ends:
            del self._ends[end.id, end.attempt]
        self.unstored -= Counter(end.collection for end in ends)

    async def _store(self, events: Sequence[EventRow], ends: Sequence[End]) -> None:
        """Waits for a database that is away; raises what no waiting mends."""
        touched, self._touched = self._touched, set()
        for failures in count():
            try:
                now, again = timezone.now(), failures > 0
                changed = await self._in_database(record_batch, events=events, ends=ends, now=now, again=again)
            except (OperationalError, InterfaceError) as problem:
                note_error(problem)
                self.trouble = f"The database does not take results: {problem}"
                self._log.failed(problem)
                await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            else:
                self.trouble = ""
                self._log.works()
                self._changed(changed | touched)
                return

    async def _store_singly(self, events: Sequence[EventRow], ends: Sequence[End]) -> None:
        """What cannot be stored ends as failed and says so; its neighbours are stored as they are."""
        by_attempt: dict[tuple[int, int], list[EventRow]] = {}
        for event in events:
            by_attempt.setdefault(event[:2], []).append(event)
        for end in ends:
            own = by_attempt.pop((end.id, end.attempt), [])
            try:
                await self._store(own, [end])
            except Exception as problem:
                logger.exception("rollout %s cannot be stored", end.id)
                await self._store([], [unstorable_end(end, problem)])
        for (rollout_id, _), rest in by_attempt.items():
            try:
                await self._store(rest, [])
            except Exception:
                logger.exception("%d events of rollout %s cannot be stored", len(rest), rollout_id)

    async def _nap(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()


def _size(row: EventRow) -> int:
    # Not its length: a text with one emoji takes four bytes for each of its characters.
    return sys.getsizeof(row[4]) + (len(row[5]) if row[5] else 0) + EVENT_BYTES
