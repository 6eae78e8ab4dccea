"""Keep every seat busy: claim rows, run one asyncio task a rollout, hand results to the outbox, drain on request."""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from channels.worker import Worker as ChannelsWorker
from django.conf import settings
from django.db import connection, transaction
from django.utils.module_loading import import_string

from apps.gym import leaving
from apps.gym.items import TaskRow
from apps.policies.connecting import open_outbound
from apps.rollouts.announcing import DOORBELL, announce_from_loop
from apps.rollouts.claiming import MAX_CLAIM, Claim, claim_rollouts
from apps.rollouts.connecting import Settings
from apps.rollouts.heart import Heart
from apps.rollouts.leasing import drain_lease, give_up_lease, live_workers, reap_leases, take_lease
from apps.rollouts.models import Collection
from apps.rollouts.outbox import Outbox
from apps.rollouts.running import Setting, cancelled_end, failed_to_start, run_rollout
from apps.rollouts.sharing import InUse, Share
from apps.tasks.models import Task

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""Polling is the guarantee; the doorbell only shortens the wait."""
CLAIM_SECONDS = 0.05
ANNOUNCE_SECONDS = 0.2
CHORE_SECONDS = 1.0
MAX_BACKLOG = 2_000
"""Finished rollouts that wait for the database before the worker stops claiming."""

Result = TypeVar("Result")


class RolloutWorker(ChannelsWorker):
    """A Channels worker whose channel only rings: no agent loop ever runs inside a dispatch."""

    def __init__(self, application: Any, channels: list[str], channel_layer: Any, seats: int | None = None) -> None:
        super().__init__(application, channels, channel_layer)
        self.seats = seats or settings.WORKER_SEATS
        self.lease = 0
        self._running: dict[asyncio.Task[None], tuple[Claim, Setting]] = {}
        self._rung = asyncio.Event()
        self._stopping = False
        self._changed: set[int] = set()
        self._database = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollouts-database")
        self._leaving = threading.Event()
        self._chores = ThreadPoolExecutor(1, "rollouts-chores", initializer=leaving.obey, initargs=(self._leaving,))
        self._live: list[int] = []

    # -- the outside: start, ring, stop ---------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask for a drain; `handle` returns when it is done."""
        self._stopping = True
        self._rung.set()

    async def handle(self) -> None:
        """Work until stopped, then drain. Returns with the lease given up and every result stored."""
        self._outbound = open_outbound()
        self._settings = Settings(self._outbound)
        self._outbox = Outbox(in_database=self._in_database, changed=self._changed.update)
        await self._take_identity()
        flushing = asyncio.create_task(self._outbox.run())
        # Results that nobody stores any more must stop the work, not pile up: `await flushing` then says why.
        flushing.add_done_callback(lambda _: self.stop())
        around = [
            asyncio.create_task(job) for job in (self._listen(), self._announce(), self._watch(), self._do_chores())
        ]
        try:
            await self._supervise()
            await self._drain()
        finally:
            self._leaving.set()
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
            except Exception as problem:
                logger.warning("cannot claim: %r", problem)
            if claimed < MAX_CLAIM:
                await self._wait_for_ring(CLAIM_SECONDS if claimed else POLL_SECONDS)

    async def _fill_seats(self) -> int:
        free = self.seats - len(self._running)
        if free <= 0 or not self.lease or self._outbox.troubled or self._outbox.backlog > MAX_BACKLOG:
            return 0
        lease = self.lease
        claims = await self._in_database(_claim_with_rows, lease, free, self._in_use(), self._settings)
        if lease != self.lease:
            return 0  # The lease was lost meanwhile, and these rows with it: their next owner runs them.
        for claim, row, setting in claims:
            if isinstance(setting, Exception):
                self._outbox.keep_end(failed_to_start(claim, setting))
                continue
            task = asyncio.create_task(self._run(claim, row, setting))
            self._running[task] = (claim, setting)
            task.add_done_callback(self._seat_freed)
        if claims:
            self._changed.update(claim.collection_id for claim, _, _ in claims)
        return len(claims)

    def _in_use(self) -> InUse:
        return InUse(list(self._running.values()), Share.of(self.lease, self._live))

    def _seat_freed(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        # Wake when a worthwhile batch is free, or nothing is left to wait for; else the poll does it.
        if not self._running or self.seats - len(self._running) >= min(MAX_CLAIM, self.seats):
            self._rung.set()

    async def _run(self, claim: Claim, row: TaskRow, setting: Setting) -> None:
        try:
            end = await run_rollout(claim=claim, row=row, setting=setting, keep=self._outbox.keep_event)
        except asyncio.CancelledError:
            self._outbox.forget(claim)
            raise
        except Exception as bug:
            logger.exception("rollout %s broke beyond its own handling", claim.rollout_id)
            end = failed_to_start(claim, bug)
        self._outbox.keep_end(end)

    async def _wait_for_ring(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            pass
        self._rung.clear()

    # -- beside the claiming: doorbell, pages, cancellations, chores --------------------------------------------------

    async def _listen(self) -> None:
        """Hear the doorbell. A layer that fails costs latency alone."""
        while True:
            try:
                await self.channel_layer.receive(DOORBELL)
                self._rung.set()
            except Exception as problem:
                logger.warning("doorbell unheard: %r", problem)
                await asyncio.sleep(POLL_SECONDS)

    async def _announce(self) -> None:
        while True:
            await asyncio.sleep(ANNOUNCE_SECONDS)
            await self._say_changed()

    async def _say_changed(self) -> None:
        changed, self._changed = self._changed.copy(), self._changed
        self._changed.clear()
        for collection_id in changed:
            await announce_from_loop(collection_id)

    async def _watch(self) -> None:
        """Drop the loops of cancelled collections, and keep the number of workers that share the limits."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            collections = {claim.collection_id for claim, _ in self._running.values()}
            try:
                cancelled, self._live = await self._in_database(_look_around, collections)
            except Exception as problem:
                logger.warning("cannot look around: %r", problem)
                continue
            for task, (claim, _) in list(self._running.items()):
                # False for a task that has just ended: its own end counts.
                if claim.collection_id in cancelled and task.cancel():
                    self._outbox.keep_end(cancelled_end(claim))

    async def _do_chores(self) -> None:
        """Long work of the rooms, one piece at a time in a thread of its own."""
        chores: list[Callable[[], bool]] = [import_string(path) for path in settings.WORKER_CHORES]
        loop = asyncio.get_running_loop()
        while True:
            found = False
            for chore in chores:
                try:
                    found |= await loop.run_in_executor(self._chores, _with_connection, chore)
                except Exception:
                    logger.exception("chore %s failed", chore)
            if not found:
                await asyncio.sleep(CHORE_SECONDS)

    # -- identity -------------------------------------------------------------------------------------------------

    async def _take_identity(self) -> None:
        await self._in_database(reap_leases)
        worker = await self._in_database(take_lease, seats=self.seats)
        self._live = await self._in_database(live_workers)
        self.lease = worker.pk
        loop = asyncio.get_running_loop()

        def lost() -> None:
            loop.call_soon_threadsafe(self._lease_lost, worker.pk)

        self._heart = Heart(worker_id=worker.pk, busy=lambda: len(self._running), lost=lost)
        self._heart.start()

    def _lease_lost(self, lease: int) -> None:
        """Others run what this worker ran: drop it all and begin again under a new identity."""
        if lease == self.lease and not self._stopping:
            logger.warning("lease %s lost: dropping %d rollouts", lease, len(self._running))
            self.lease = 0
            self._identity_change = asyncio.ensure_future(self._begin_again())

    async def _begin_again(self) -> None:
        await self._drop_all()
        while not self.lease and not self._stopping:
            try:
                await self._take_identity()
            except Exception as problem:
                logger.warning("no new lease yet: %r", problem)
                await asyncio.sleep(POLL_SECONDS)
        self._rung.set()

    async def _drop_all(self) -> None:
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the end --------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Give the loops their grace, then drop the rest; `_leave` queues those again."""
        try:
            await self._in_database(drain_lease, worker_id=self.lease)
        except Exception as problem:
            logger.warning("draining unannounced: %r", problem)
        if self._running:
            await asyncio.wait(list(self._running), timeout=settings.WORKER_GRACE_SECONDS)
        await self._drop_all()

    async def _leave(self) -> None:
        self._heart.stop()
        try:
            released = await self._in_database(give_up_lease, worker_id=self.lease)
            if released:
                logger.info("%d rollouts released", released)
        except Exception as problem:
            logger.warning("lease not given up, it will run out: %r", problem)
        await self._in_database(_close_connection)
        await self._outbound.close()
        await asyncio.get_running_loop().run_in_executor(None, self._heart.join)
        self._database.shutdown(wait=False)
        self._chores.shutdown(wait=False)

    async def _in_database(self, work: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Run on the one database thread, with a live connection."""
        call = partial(_with_live_connection, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._database, call)


def _claim_with_rows(
    lease: int, seats: int, in_use: InUse, settings_in_use: Settings
) -> list[tuple[Claim, TaskRow, Setting | Exception]]:
    """Claims with what running them needs. A task's row is parsed once a batch and shared by its repeats."""

    def setting(collection_id: int) -> Setting | Exception:
        try:
            return settings_in_use.get(collection_id)
        except Exception as problem:
            logger.warning("collection %s cannot run: %r", collection_id, problem)
            return problem

    # One transaction: a claim whose tasks cannot be read is no claim.
    with transaction.atomic():
        claims = claim_rollouts(lease=lease, slots=in_use.slots(seats))
        rows = {task.pk: task.row for task in Task.objects.filter(pk__in={claim.task_id for claim in claims})}
    return [(claim, rows[claim.task_id], setting(claim.collection_id)) for claim in claims]


def _look_around(collection_ids: set[int]) -> tuple[set[int], list[int]]:
    cancelled = Collection.objects.filter(pk__in=collection_ids, state=Collection.State.CANCELLED)
    return set(cancelled.values_list("pk", flat=True)), live_workers()


def _with_live_connection(work: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    try:
        return work(*args, **kwargs)
    except Exception:
        # A broken connection is dropped, so that the next call opens a fresh one.
        if connection.connection is not None and not connection.is_usable():
            connection.close()
        raise


def _close_connection() -> None:
    # Looked up here: `connection` is another object in every thread, and only its own thread may close it.
    connection.close()


def _with_connection(chore: Callable[[], bool]) -> bool:
    try:
        return chore()
    finally:
        connection.close()
