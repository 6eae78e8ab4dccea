"""The outbox of a worker: store events and ends of attempts in batches, and retry during database outages."""

import asyncio
import logging
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count, islice
from typing import Any, NamedTuple

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from apps.accounts.disk_space import note_error
from apps.accounts.outage_log import RetryLog
from apps.gym.calls.memory_budget import MemoryBudget
from apps.gym.redaction.redactor import Counts
from apps.gym.traces.events import TraceUnion, split_event
from apps.policies.installation_redactor import current_redactor
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.recording import End, record_batch, unstorable_end
from apps.rollouts.engine.trace_redaction import AttemptKey, clean_batch
from apps.rollouts.trace_images import EventRow, take_event_images
from apps.tasks.stored_images import Images

logger = logging.getLogger(__name__)

FLUSH_SECONDS, LONGEST_FLUSH_SECONDS = 0.05, 3.0
"""Least and most seconds between two batches of a worker: the more workers share the database, the longer."""
BATCHES_PER_SECOND = 20
"""Number of batches per second of all workers together, if LONGEST_FLUSH_SECONDS permits it."""
MAX_ENDS = 200
"""Maximum number of ends in a batch. A batch with ends contains all queued events."""
MAX_EVENTS = 2_000
"""Maximum number of events in a batch without ends."""
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds to wait after each failed attempt to store a batch. The last value repeats."""

MEMORY_DIVISOR = 2
"""Unstored events may use 1/MEMORY_DIVISOR of the memory budget. Above that, rollouts wait for space."""
EVENT_BYTES = 300
"""Approximate bytes of memory per event, without its payload."""

InDatabase = Callable[..., Awaitable[Any]]
"""Runs a function on the database thread of the worker and returns its result."""


class NotStored(Exception):
    """Raised if the database rejects an event permanently."""


class _Waiter(NamedTuple):
    """A caller that waits until the total number of stored events reaches `events`."""

    events: int
    attempt: AttemptKey
    stored: "asyncio.Future[None]"


class Outbox:
    """Buffers events and ends of attempts until they are stored.

    During a database outage, nothing is lost and `trouble` has the error. If the database rejects events or the end of
    an attempt, it logs the error and drops them. In place of that end, a failed one is stored.

    `changed` is called with the ids of the collections in each stored batch.
    """

    def __init__(
        self, *, in_database: InDatabase, changed: Callable[[set[int]], None], memory: MemoryBudget | None = None
    ) -> None:
        self._memory = memory or MemoryBudget()
        self._in_database = in_database
        self._changed = changed
        self._events: list[EventRow] = []
        self._sizes: list[int] = []
        self._ends: dict[AttemptKey, End] = {}
        self._seqs: dict[AttemptKey, int] = {}
        self._filled = asyncio.Event()  # there is something to store
        self._flush_seconds = FLUSH_SECONDS
        self._wake = asyncio.Event()  # do not wait for `_flush_seconds`
        self._redactions: dict[AttemptKey, Counts] = {}
        self._rejected: dict[AttemptKey, Exception] = {}  # attempts with events that the database rejected
        self._stopping = False
        self._changed_ids: set[int] = set()  # collections with queued events
        self._bytes = 0
        self._space = asyncio.Event()
        self._space.set()
        self.is_full = False
        """True while queued events use too much memory."""
        self.trouble = ""
        self._log = RetryLog("storing results")
        self._queued_events = self._stored_events = 0
        self._waiters: deque[_Waiter] = deque()
        self.unstored: Counter[int] = Counter()
        """Number of ends waiting to be stored, by collection id."""

    def add_event(self, claim: Claim, event: TraceUnion) -> int:
        """Queue an event and return its size in memory, in bytes."""
        key = (claim.rollout_id, claim.attempt)
        seq = self._seqs.get(key, 0)
        self._seqs[key] = seq + 1
        row = (*key, seq, *split_event(event))
        self._events.append(row)
        self._changed_ids.add(claim.collection_id)
        size = _size(row)
        self._sizes.append(size)
        self._bytes += size
        self._queued_events += 1
        self._memory.add(size)
        if self._bytes * MEMORY_DIVISOR > self._memory.limit:
            self.is_full = True
            self._space.clear()
            self._wake.set()
        elif self._queued_events - self._stored_events >= MAX_EVENTS:
            self._wake.set()
        self._filled.set()
        return size

    def share_database(self, workers: int) -> None:
        """Store less often if many workers share the database: each batch has a fixed cost."""
        self._flush_seconds = min(LONGEST_FLUSH_SECONDS, max(FLUSH_SECONDS, workers / BATCHES_PER_SECOND))

    def store_now(self) -> None:
        """Store all queued events and ends at once."""
        self._wake.set()

    async def wait_for_space(self) -> None:
        """Wait while queued events use too much memory (`is_full`). `add_event` never waits."""
        await self._space.wait()

    async def wait_until_stored(self, claim: Claim) -> None:
        """Wait until all events queued so far are stored. Raises NotStored if one of this attempt was rejected."""
        key = (claim.rollout_id, claim.attempt)
        if self._stored_events < self._queued_events:
            stored = asyncio.get_running_loop().create_future()
            self._waiters.append(_Waiter(self._queued_events, key, stored))
            self._wake.set()
            await stored
        elif key in self._rejected:
            raise self._not_stored(key)

    def add_end(self, end: End) -> None:
        """Queue the end of an attempt. Only the first end of an attempt is stored."""
        key = (end.id, end.attempt)
        self._seqs.pop(key, None)
        if key not in self._ends:
            self._ends[key] = end
            self.unstored[end.collection] += 1
        self._filled.set()
        if len(self._ends) >= MAX_ENDS:
            self._wake.set()

    def forget(self, claim: Claim) -> None:
        """Forget the event numbers of a cancelled attempt."""
        self._seqs.pop((claim.rollout_id, claim.attempt), None)

    @property
    def backlog(self) -> int:
        return len(self._ends)

    def waiting_ids(self) -> set[int]:
        """Return the ids of rollouts with an end that is not stored yet."""
        return {rollout_id for rollout_id, _ in self._ends}

    async def run(self) -> None:
        """Flush until stopped, then until the outbox is empty."""
        while not (self._stopping and not self._events and not self._ends):
            if not self._stopping:
                await self._filled.wait()
                await self._sleep(self._flush_seconds)
            self._filled.clear()
            await self._flush()
            if self._events or self._ends:
                self._filled.set()
            if self.is_full or self._waiters or len(self._events) >= MAX_EVENTS or len(self._ends) >= MAX_ENDS:
                self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._filled.set()
        self._wake.set()

    async def _flush(self) -> None:
        """Store one batch: events and ends in one transaction, so that a finished rollout has its full trace."""
        if not self._events and not self._ends:
            return
        ends = [self._without_gaps(end) for end in islice(self._ends.values(), MAX_ENDS)]
        # A copy: rollouts add events while the database thread reads.
        events = self._events[:] if ends else self._events[:MAX_EVENTS]
        try:
            await self._store(events, ends)
        except Exception:
            logger.exception("storing a batch failed: storing its %d results one by one", len(ends))
            await self._store_singly(events, ends)
        self._wake_waiters(len(events))
        del self._events[: len(events)]
        # Use the sizes measured in `add_event`: SQLite's driver enlarges non-ASCII strings when it reads them.
        stored = sum(self._sizes[: len(events)])
        del self._sizes[: len(events)]
        self._bytes -= stored
        self._memory.release(stored)
        if self._bytes * MEMORY_DIVISOR <= self._memory.limit:
            self.is_full = False
            self._space.set()
        for end in ends:
            del self._ends[end.id, end.attempt]
        self.unstored -= Counter(end.collection for end in ends)
        if self._redactions or self._rejected:
            open_attempts = self._seqs.keys() | self._ends.keys() | {row[:2] for row in self._events}
            self._redactions = {key: found for key, found in self._redactions.items() if key in open_attempts}
            self._rejected = {key: why for key, why in self._rejected.items() if key in open_attempts}

    def _without_gaps(self, end: End) -> End:
        """Return the end, or a failed one in place of a completed one if events of the attempt were rejected."""
        problem = self._rejected.get((end.id, end.attempt))
        return unstorable_end(end, problem) if problem and end.status == "completed" else end

    def _wake_waiters(self, number: int) -> None:
        self._stored_events += number
        while self._waiters and self._waiters[0].events <= self._stored_events:
            _, attempt, stored = self._waiters.popleft()
            if stored.done():
                continue
            if attempt in self._rejected:
                stored.set_exception(self._not_stored(attempt))
            else:
                stored.set_result(None)

    def _not_stored(self, attempt: AttemptKey) -> NotStored:
        return NotStored(f"The call could not be stored: {self._rejected[attempt]}")

    async def _store(self, events: Sequence[EventRow], ends: Sequence[End]) -> None:
        """Redact and store a batch. Retry while the database is unavailable; raise permanent errors."""
        changed_ids, self._changed_ids = self._changed_ids, set()
        batch = _Batch(events, ends, self._redactions)
        for failures in count():
            try:
                changed = await self._in_database(batch.store, may_be_stored=failures > 0)
            except (OperationalError, InterfaceError) as problem:
                note_error(problem)
                self.trouble = f"Storing results failed and is retried: {problem}"
                self._log.failed(problem)
                await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            else:
                self.trouble = ""
                self._log.works()
                self._redactions = batch.redactions
                self._changed(changed | changed_ids)
                return

    async def _store_singly(self, events: Sequence[EventRow], ends: Sequence[End]) -> None:
        """Store the events and the end of each attempt on their own.

        The events of a rejected attempt are dropped, and a failed end is stored in place of its own.
        """
        by_attempt: dict[AttemptKey, list[EventRow]] = {}
        for event in events:
            by_attempt.setdefault(event[:2], []).append(event)
        for end in ends:
            own = by_attempt.pop((end.id, end.attempt), [])
            try:
                await self._store(own, [end])
            except Exception as problem:
                logger.exception("rollout %s cannot be stored", end.id)
                self._rejected[end.id, end.attempt] = _without_frames(problem)
                await self._store([], [unstorable_end(end, problem)])
        # The events of attempts that have not ended.
        for attempt, rest in by_attempt.items():
            try:
                await self._store(rest, [])
            except Exception as problem:
                logger.exception("%d events of rollout %s cannot be stored", len(rest), attempt[0])
                self._rejected[attempt] = _without_frames(problem)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()


class _Batch:
    """A batch of events and ends. Redacted once, even if storing is retried. Used on the database thread."""

    def __init__(self, events: Sequence[EventRow], ends: Sequence[End], redactions: dict[AttemptKey, Counts]) -> None:
        self.redactions = redactions
        self._events, self._ends = events, ends
        self._images: dict[int, Images] = {}
        self._is_redacted = False

    def store(self, *, may_be_stored: bool) -> set[int]:
        """Store the batch and return the ids of changed collections. `may_be_stored`: see record_batch."""
        if not self._is_redacted:
            events, self._images = take_event_images(self._events)
            self._events, self._ends, self.redactions = clean_batch(
                events, self._ends, current_redactor(), self.redactions
            )
            self._is_redacted = True
        return record_batch(
            events=self._events, ends=self._ends, now=timezone.now(), may_be_stored=may_be_stored, images=self._images
        )


def _without_frames(problem: Exception) -> Exception:
    """Return the error without its traceback, whose frames refer to the whole batch."""
    problem.__traceback__ = problem.__context__ = problem.__cause__ = None
    return problem


def _size(row: EventRow) -> int:
    # Not `len`: with one emoji, every character of a string takes four bytes.
    return sys.getsizeof(row[4]) + (len(row[5]) if row[5] else 0) + EVENT_BYTES
