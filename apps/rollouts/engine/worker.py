"""Keep every seat busy: claim rows, run one asyncio task a rollout, hand results to the outbox, drain on request."""

import asyncio
import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from channels.worker import Worker as ChannelsWorker
from django.conf import settings
from django.db import InterfaceError, OperationalError

from apps.accounts.outage_log import LAYER, RetryLog
from apps.gym.calls.memory_budget import current_account
from apps.gym.calls.observers import Outcome
from apps.gym.errors import GymError
from apps.gym.traces.events import TraceUnion
from apps.gym.traces.items import TaskRow
from apps.policies.policy_clients import open_outbound
from apps.rollouts.engine.background_jobs import BackgroundJobs
from apps.rollouts.engine.circuit_breakers import Breakers, Endpoint
from apps.rollouts.engine.claimed_work import fetch_work
from apps.rollouts.engine.claiming import MAX_CLAIM, Claim
from apps.rollouts.engine.connections import Settings
from apps.rollouts.engine.database_thread import DatabaseThread
from apps.rollouts.engine.garbage import calm_collector, return_freed_memory
from apps.rollouts.engine.heartbeats import Heartbeat
from apps.rollouts.engine.judge_seats import JudgeSeats
from apps.rollouts.engine.outbox import Outbox
from apps.rollouts.engine.running import Setting, broken_end, cancelled_end, run_rollout
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.stalls import StallWatch
from apps.rollouts.engine.surroundings import look_around
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.engine.worker_counters import Meters
from apps.rollouts.engine.worker_leases import (
    Vitals,
    drain_lease,
    give_up_lease,
    live_workers,
    reap_leases,
    release_unknown,
    renew_lease,
    take_lease,
)
from apps.rollouts.notifications import WORKER_CHANNEL, announce_from_loop

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""Workers poll. A notification only shortens the wait."""
CLAIM_SECONDS = 0.05
ANNOUNCE_SECONDS = 0.2
RECONCILE_LOOKS = 5
MAX_BACKLOG = 2_000
"""Finished rollouts that wait for the database before the worker stops claiming."""
MAX_CLAIMS = 20
"""Claims of one rollout after which its next failure is its last, whosever fault it is."""

HANGING_SECONDS = 5.0
"""The silence of the database that is worth a word."""

Result = TypeVar("Result")


class RolloutWorker(ChannelsWorker):
    """A Channels worker whose channel only rings: no agent loop ever runs inside a dispatch."""

    def __init__(
        self,
        application: Any,
        channels: list[str],
        channel_layer: Any,
        seats: int | None = None,
        group: str = "",
        *,
        background_jobs: bool = True,
    ) -> None:
        super().__init__(application, channels, channel_layer)
        self.seats = seats or settings.WORKER_SEATS
        self.group = group
        self.lease = 0
        self._leave_at = math.inf
        self._attempting: Counter[int] = Counter()  # rollouts by policy model
        self._judge_seats = JudgeSeats()
        self._running: dict[asyncio.Task[None], tuple[Claim, Setting]] = {}
        self._rung = asyncio.Event()
        self._stopping = False
        self._changed: set[int] = set()
        self._database = DatabaseThread()
        self._background_jobs = BackgroundJobs(settings.WORKER_BACKGROUND_JOBS if background_jobs else [], group=group)
        self._live: list[tuple[int, str]] = []
        self._strays: set[int] = set()
        self._started: set[int] = set()
        self._awaits_results = False
        self._trouble = ""
        self._claim_log = RetryLog("claiming rollouts")
        self._watch_log = RetryLog("polling the database")
        self._lease_log = RetryLog("taking a lease")
        self._heartbeat: Heartbeat | None = None
        self._breakers = Breakers()
        self._throttles = Throttles()
        self._meters = Meters()

    # -- the outside: start, ring, stop ---------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask for a drain within the grace; `handle` returns when it is done."""
        self._leave_at = min(self._leave_at, time.monotonic() + settings.WORKER_GRACE_SECONDS)
        self._finish_and_leave()

    def _finish_and_leave(self) -> None:
        self._stopping = True
        self._rung.set()

    async def handle(self) -> None:
        """Work until stopped, then drain. Returns with the lease given up and every result stored."""
        calm_collector()
        self._outbound = open_outbound()
        self._settings = Settings(self._outbound, self._watch_call, self._judge_seats, self._throttles)
        self._memory = self._outbound.memory
        self._outbox = Outbox(in_database=self._in_database, changed=self._changed.update, memory=self._memory)
        await self._obtain_identity(reap_leases)
        stalls = StallWatch()
        stalls.start()
        flushing = asyncio.create_task(self._outbox.run())
        # Results that nobody stores any more must stop the work, not pile up: `await flushing` then says why.
        flushing.add_done_callback(lambda _: self.stop())
        jobs = [self._listen(), self._announce(), self._watch(), self._mind_database(), self._background_jobs.run()]
        jobs.append(return_freed_memory(self._memory))
        around = [asyncio.create_task(job) for job in jobs]
        try:
            await self._supervise()
            await self._drain()
        finally:
            self._background_jobs.leave()
            stalls.stop()
            for task in around:
                task.cancel()
            await asyncio.gather(*around, return_exceptions=True)
            self._outbox.stop()
            await flushing
            await self._say_changed()
            await self._leave()

    # -- claiming -------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        while not self._stopping:
            claimed = 0
            try:
                claimed = await self._fill_seats()
                self._trouble = ""
            except Exception as problem:
                self._trouble = f"Nothing can be claimed: {problem}"
                self._claim_log.failed(problem)
            if claimed < MAX_CLAIM:
                await self._wait_for_ring(CLAIM_SECONDS if claimed or self._awaits_results else POLL_SECONDS)

    async def _fill_seats(self) -> int:
        self._awaits_results = False
        free = self.seats - len(self._running)
        if free <= 0 or not self.lease or self._is_behind():
            return 0
        lease, turns, in_use = self.lease, self._breakers.take_turns(), self._in_use()
        try:
            fetched = await self._in_database(
                fetch_work,
                lease=lease,
                seats=free,
                in_use=in_use,
                turns=turns,
                started=self._started,
                settings_in_use=self._settings,
            )
        except BaseException:
            self._breakers.return_turns(turns)
            raise
        self._claim_log.works()
        self._awaits_results = in_use.awaits_results
        self._judge_seats.learn(in_use.judge_rooms, self._attempting)
        if lease != self.lease:
            return 0  # The lease was lost meanwhile, and these rows with it: their next owner runs them.
        for claim, row, setting in fetched:
            task = asyncio.create_task(self._run(claim, row, setting))
            self._running[task] = (claim, setting)
            self._attempting[setting.policy_model_id] += 1
            task.add_done_callback(self._seat_freed)
        if fetched:
            self._meters.count("claims")
            self._meters.count("claimed", by=len(fetched))
            self._changed.update(work.claim.collection_id for work in fetched)
        return len(fetched)

    def _is_behind(self) -> bool:
        """Whether the database has to catch up, or memory to be given back, before more is begun."""
        return bool(self._outbox.trouble) or self._outbox.backlog > MAX_BACKLOG or self._memory.is_full

    def _in_use(self) -> InUse:
        return InUse(
            list(self._running.values()),
            lease=self.lease,
            live=self._live,
            group=self.group,
            asked=self._judge_seats.taken(),
            unstored=self._outbox.unstored.copy(),
            claimable=self._throttles.claimable(),
        )

    def _seat_freed(self, task: asyncio.Task[None]) -> None:
        ended = self._running.pop(task, None)
        if ended is not None:
            self._attempting[ended[1].policy_model_id] -= 1
            self._judge_seats.learn({}, self._attempting)
        # Wake when a worthwhile batch is free, or nothing is left to wait for; else the poll does it. A quarter of few
        # seats is worthwhile: to wait for all of them leaves them empty between short rollouts.
        if not self._running or self.seats - len(self._running) >= min(MAX_CLAIM, self.seats // 4):
            self._rung.set()

    async def _run(self, claim: Claim, row: TaskRow, setting: Setting) -> None:
        try:
            with self._memory.account():
                end = await run_rollout(claim=claim, row=row, setting=setting, listener=self)
        except asyncio.CancelledError:
            self._outbox.forget(claim)
            raise
        except Exception as bug:
            logger.exception("rollout %s broke beyond its own handling", claim.rollout_id)
            end = broken_end(claim, bug)
        self._meters.count_end(end.status, end.error_kind, end.duration, end.input_tokens, end.output_tokens)
        self._outbox.keep_end(end)

    # -- what running rollouts tell and ask (running.Listener) -----------------------------------------------------

    def keep(self, claim: Claim, event: TraceUnion) -> None:
        size = self._outbox.keep_event(claim, event)
        if account := current_account():
            account.retain(size)
        self._meters.count_event(event)

    def has_room(self) -> bool:
        return not self._outbox.is_full

    async def wait_for_room(self) -> None:
        await self._outbox.wait_for_room()

    def another_attempt(self, claim: Claim, setting: Setting, failure: GymError) -> int | None:
        """An attempt that failed with its endpoint, while that fails everybody, does not count as the rollout's own.

        Nor does one that failed since this worker is set up wrongly: it leaves the collection to others. An endpoint
        that takes no calls for now (a long pause, an exhausted quota) costs no attempt either, however often.
        """
        if failure.refused_by:
            return 0
        if failure.is_ours:
            self._settings.refuse(claim.collection_id, str(failure))
            return 0
        if not failure.passing or claim.attempt >= MAX_CLAIMS:
            return None
        if self._breakers.holds(_failing_endpoint(setting, failure)):
            return 0
        return 1 if claim.failures + 1 < setting.max_attempts else None

    def _watch_call(self, endpoint: Endpoint, slug: str, outcome: Outcome, message: str) -> None:
        self._breakers.observe(endpoint, outcome, message)
        if outcome == "quota":
            self._throttles.exhausted(endpoint, message)
        self._meters.count_try(endpoint.kind, slug, outcome)

    async def _wait_for_ring(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            pass
        self._rung.clear()

    # -- beside the claiming: notifications, pages, cancellations, background jobs -----------------------------------

    async def _listen(self) -> None:
        """Receive notifications. If the channel layer fails, claims only come later."""
        while True:
            try:
                await self.channel_layer.receive(WORKER_CHANNEL)
                self._rung.set()
            except Exception as problem:
                LAYER.failed("listening for wake-ups", problem)
                await asyncio.sleep(POLL_SECONDS)

    async def _announce(self) -> None:
        while True:
            await asyncio.sleep(ANNOUNCE_SECONDS)
            await self._say_changed()

    async def _say_changed(self) -> None:
        changed, self._changed = self._changed.copy(), self._changed
        self._changed.clear()
        for collection_id in changed:
            if not await announce_from_loop(collection_id):
                return  # Pages poll meanwhile; waiting for a layer that is away once for every collection helps nobody.

    async def _watch(self) -> None:
        """Drop the loops of cancelled collections, hear of breakers, limits, other workers and a wish to drain."""
        for look in itertools.count(1):
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self._look_around()
                if look % RECONCILE_LOOKS == 0:
                    await self._reconcile()
                self._watch_log.works()
            except Exception as problem:
                self._watch_log.failed(problem)

    async def _mind_database(self) -> None:
        """Say that the database hangs: a call that is never answered raises nothing."""
        said = 0.0
        while True:
            await asyncio.sleep(POLL_SECONDS)
            silence = self._database.silence
            if silence > max(HANGING_SECONDS, 2 * said):
                said = silence
                results = self._outbox.backlog
                logger.warning("the database has not answered for %.0f s (%d ended rollouts wait)", silence, results)
            elif silence < HANGING_SECONDS:
                said = 0.0

    async def _look_around(self) -> None:
        collections = {claim.collection_id for claim, _ in self._running.values()}
        turns = self._breakers.take_turns()
        try:
            seen = await self._in_database(look_around, lease=self.lease, collection_ids=collections, turns=turns)
        except BaseException:
            self._breakers.return_turns(turns)
            raise
        if self._running:
            await self._in_database(self._settings.follow_versions)
        self._live = seen.live
        self._breakers.learn(seen.shut)
        self._throttles.learn(seen.throttled)
        self._changed.update(seen.paused)
        if seen.is_draining and not self._stopping:
            logger.info("asked to drain: leaving when %d rollouts have ended", len(self._running))
            self._finish_and_leave()
        for task, (claim, _) in list(self._running.items()):
            # False for a task that has just ended: its own end counts.
            if claim.collection_id in seen.cancelled and task.cancel():
                self._outbox.keep_end(cancelled_end(claim))
                self._meters.count_end("cancelled", "", 0.0, 0, 0)

    async def _reconcile(self) -> None:
        """Give back rows that this worker holds without knowing: a claim's answer may be lost on its way."""
        lease = self.lease
        if lease:
            known = {claim.rollout_id for claim, _ in self._running.values()} | self._outbox.waiting_ids()
            self._strays = await self._in_database(release_unknown, worker_id=lease, known=known, suspects=self._strays)

    # -- identity -------------------------------------------------------------------------------------------------

    async def _take_identity(self) -> None:
        worker = await self._in_database(take_lease, seats=self.seats, group=self.group)
        self._live = await self._in_database(live_workers)
        self.lease = worker.pk
        loop = asyncio.get_running_loop()

        def lost() -> None:
            loop.call_soon_threadsafe(self._lease_lost, worker.pk)

        self._strays = set()
        self._heartbeat = Heartbeat(worker_id=worker.pk, vitals=self._vitals, lost=lost)
        self._heartbeat.start()

    def _vitals(self) -> Vitals:
        """Read by the heartbeat's thread."""
        backlog = self._outbox.backlog
        trouble = self._outbox.trouble or self._trouble
        if not trouble and (silence := self._database.silence) > HANGING_SECONDS:
            trouble = f"The database has not answered for {silence:.0f} s."
        if not trouble and self._memory.is_full and not self._outbox.is_full:
            trouble = "The memory budget for replies (GYMWEB_WORKER_MEMORY_MB) is used up. No rollouts are claimed now."
        if not trouble and self._is_behind():
            trouble = f"The database is slow: {backlog} ended rollouts wait to be stored."
        refuses = self._settings.refusals()
        if not trouble and refuses:
            number, why = next(iter(refuses.items()))
            others = f" (and {len(refuses) - 1} more)" if len(refuses) > 1 else ""
            trouble = f"Cannot run collection {number}{others}: {why}"
        memory = {"used": self._memory.used, "limit": self._memory.limit, "waiting": self._memory.waiting}
        return Vitals(len(self._running), backlog, trouble, refuses, {**self._meters.read(), "memory": memory})

    def _lease_lost(self, lease: int) -> None:
        """Others run what this worker ran: drop it all and begin again under a new identity."""
        if lease == self.lease and not self._stopping:
            logger.warning("lease %s lost: dropping %d rollouts", lease, len(self._running))
            self.lease = 0
            if self._heartbeat:
                self._heartbeat.stop()
            self._identity_change = asyncio.ensure_future(self._begin_again())

    async def _begin_again(self) -> None:
        await self._drop_all()
        self._meters = Meters()  # A new identity counts anew: what the old one counted stands in its row.
        await self._obtain_identity()
        self._rung.set()

    async def _obtain_identity(self, *first: Callable[[], object]) -> None:
        """Wait for the database if it is away, at the start too: it may come up after its workers."""
        while not self.lease and not self._stopping:
            try:
                for work in first:
                    await self._in_database(work)
                await self._take_identity()
                self._lease_log.works()
            except (OperationalError, InterfaceError) as problem:
                if "no such table" in str(problem):
                    raise  # SQLite's word for a database that nobody migrated: waiting mends nothing
                self._trouble = f"No lease can be had: {problem}"
                self._lease_log.failed(problem)
                await asyncio.sleep(POLL_SECONDS)

    async def _drop_all(self) -> None:
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the end --------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Give the loops their grace, or all their time if nobody is in a hurry; `_leave` queues the rest again."""
        # Beside the waiting: a database that hangs must not keep the grace from ending.
        saying = asyncio.create_task(self._say_draining())
        while self._running and (left := self._leave_at - time.monotonic()) > 0:
            # In steps, since somebody may get into a hurry meanwhile.
            await asyncio.wait(list(self._running), timeout=min(left, POLL_SECONDS))
        await self._drop_all()
        await saying

    async def _say_draining(self) -> None:
        try:
            await self._in_database(drain_lease, worker_id=self.lease)
        except Exception as problem:
            logger.warning("draining unannounced: %r", problem)

    async def _leave(self) -> None:
        if self._heartbeat:
            self._heartbeat.stop()
        try:
            # Its last words: what it counted since its last heartbeat.
            await self._in_database(renew_lease, worker_id=self.lease, vitals=self._vitals())
            released = await self._in_database(give_up_lease, worker_id=self.lease)
            if released:
                logger.info("%d rollouts released", released)
        except Exception as problem:
            logger.warning("lease not given up, it will run out: %r", problem)
        await self._throttles.close()
        await self._database.close()
        await self._outbound.close()
        if self._heartbeat:
            await asyncio.get_running_loop().run_in_executor(None, self._heartbeat.join)
        self._background_jobs.close()

    async def _in_database(self, work: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        return await self._database.run(work, *args, **kwargs)


def _failing_endpoint(setting: Setting, failure: GymError) -> Endpoint:
    """Which of a rollout's endpoints an attempt failed with; a resource server may have a judge of its own."""
    if failure.kind == "policy_error":
        return Endpoint("policy_model", setting.policy_model_id)
    if failure.kind == "judge_error" and setting.judge_model_id is not None:
        return Endpoint("policy_model", setting.judge_model_id)
    return Endpoint("environment", setting.environment_id)
