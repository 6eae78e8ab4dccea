"""The rollout worker: claims rollouts, runs each in an asyncio task, and stores results through the outbox."""

import asyncio
import itertools
import logging
import math
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from channels.worker import Worker as ChannelsWorker
from django.conf import settings

from apps.accounts.outage_log import LAYER, RetryLog
from apps.accounts.telemetry.log_context import CURRENT_ROLLOUT
from apps.gym.traces.items import TaskRow
from apps.policies.policy_clients import open_outbound
from apps.rollouts.engine.background_jobs import BackgroundJobs
from apps.rollouts.engine.circuit_breakers import Breakers
from apps.rollouts.engine.claimed_work import Fetched, Work, WorkerUpdates, read_updates
from apps.rollouts.engine.claiming import MAX_CLAIM, Claim
from apps.rollouts.engine.database_thread import DatabaseThread
from apps.rollouts.engine.garbage import return_freed_memory, tune_garbage_collection
from apps.rollouts.engine.outbox import Outbox
from apps.rollouts.engine.reservations import Reservations
from apps.rollouts.engine.rollout_listener import RolloutListener
from apps.rollouts.engine.rollout_spans import engine_calls
from apps.rollouts.engine.running import Setting, broken_end, cancelled_end
from apps.rollouts.engine.shared_limits import InUse
from apps.rollouts.engine.stalls import StallWatch
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.engine.worker_counters import Meters
from apps.rollouts.engine.worker_identity import WorkerIdentity
from apps.rollouts.engine.worker_leases import Vitals, reap_leases
from apps.rollouts.engine.worker_seats import WorkerSeats
from apps.rollouts.notifications import WORKER_CHANNEL, Changes

if TYPE_CHECKING:
    from apps.rollouts.engine.agents.command_attempts import CommandAttempts
    from apps.rollouts.engine.agents.external_attempts import ExternalAttempt, ExternalAttempts
    from apps.rollouts.engine.agents.hosted_attempts import HostedAttempt

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""Seconds between two claims, which notifications shorten. Least seconds between two polls for updates."""
LONGEST_POLL_SECONDS = 2.0
"""Most seconds between two polls for updates while rollouts run."""
POLLS_PER_SECOND = 32
"""Number of polls for updates per second of all workers together, if LONGEST_POLL_SECONDS permits it."""
IDLE_SECONDS = 5.0
"""Seconds between two polls for updates while no rollout runs."""
PAUSING_SECONDS = 0.2
"""Seconds between two claims while rollouts wait before a retry, because nothing tells when their seats are free."""
CLAIM_SECONDS = 0.05
"""Seconds between two claims while there is more to claim."""
POLLS_PER_RECONCILIATION = 5
"""After this many polls, requeue rollouts that the database assigns to this worker but that it does not run."""
MAX_BACKLOG = 2_000
"""Maximum number of finished rollouts waiting to be stored. Above it, the worker claims no rollouts."""


class RolloutWorker(ChannelsWorker):
    """A Channels worker that uses its channel only for wake-ups. Rollouts run as asyncio tasks.

    `seats` is the maximum number of running rollouts, by default WORKER_SEATS. `group` is its worker group.
    """

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
        seats = seats or settings.WORKER_SEATS
        self.group = group
        self._leave_at = math.inf  # end of the grace period, by time.monotonic
        self._woken = asyncio.Event()
        self._has_claimed = asyncio.Event()
        self._stopping = False
        self._seats = WorkerSeats(seats, freed=self._woken.set)
        self._changes = Changes()
        self._database = DatabaseThread()
        self._identity = WorkerIdentity(
            seats=seats, group=group, database=self._database, vitals=self._vitals, lost=self._lease_lost
        )
        self._background_jobs = BackgroundJobs(
            settings.WORKER_BACKGROUND_JOBS if background_jobs else [], group=group, in_database=self._database.run
        )
        self._started_collections: set[int] = set()
        self._reservations = Reservations()
        self._claim_lock = asyncio.Lock()
        self._external: ExternalAttempts | None = None
        self._commands: CommandAttempts | None = None
        self._awaits_results = False  # see InUse.awaits_results
        self._claim_log = RetryLog("claiming rollouts")
        self._poll_log = RetryLog("polling the database")
        self._breakers = Breakers()
        self._throttles = Throttles()
        self._meters = Meters()
        self._calls = engine_calls()

    @property
    def lease(self) -> int:
        return self._identity.lease

    def stop(self) -> None:
        """Claim no more rollouts. `handle` returns when all rollouts have ended or the grace period is over."""
        self._leave_at = min(self._leave_at, time.monotonic() + settings.WORKER_GRACE_SECONDS)
        self._begin_draining()

    def _begin_draining(self) -> None:
        self._stopping = True
        self._woken.set()

    async def handle(self) -> None:
        """Run until `stop` is called or an operator drains this worker.

        Before returning, requeue rollouts that are still running, store the results of all others, and end the lease.
        During a database outage, wait until the results can be stored.
        """
        tune_garbage_collection()
        self._outbound = open_outbound()
        self._memory = self._seats.memory = self._outbound.memory
        self._outbox = Outbox(in_database=self._database.run, changed=self._changes.add, memory=self._memory)
        self._listener = RolloutListener(
            self._outbound,
            self._outbox,
            judge_seats=self._seats.judges,
            breakers=self._breakers,
            throttles=self._throttles,
            meters=self._meters,
        )
        self._settings = self._listener.settings
        await self._identity.obtain(reap_leases, is_wanted=lambda: not self._stopping)
        stalls = StallWatch()
        stalls.start()
        flushing = asyncio.create_task(self._outbox.run())
        # If results can no longer be stored, stop the worker. `await flushing` then raises the cause.
        flushing.add_done_callback(lambda _: self.stop())
        jobs = [self._listen(), self._changes.announce(), self._poll(), self._background_jobs.run()]
        jobs.append(self._database.log_hanging(lambda: f"{self._outbox.backlog} finished rollouts wait to be stored"))
        jobs.append(return_freed_memory(self._memory))
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            await self._supervise()
            await self._drain()
        finally:
            self._background_jobs.leave()
            stalls.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._outbox.stop()
            await flushing
            await self._changes.announce_now()
            await self._leave()

    async def _supervise(self) -> None:
        """Claim and start rollouts until the worker drains."""
        while not self._stopping:
            claimed = 0
            try:
                claimed = await self._fill_seats()
                self._identity.trouble = ""
            except Exception as problem:
                self._identity.trouble = f"Claiming rollouts failed and is retried: {problem}"
                self._claim_log.failed(problem)
            if claimed < MAX_CLAIM:
                poll_seconds = PAUSING_SECONDS if self._memory.pausing else POLL_SECONDS
                await self._wait_until_woken(CLAIM_SECONDS if claimed or self._awaits_results else poll_seconds)

    async def _fill_seats(self) -> int:
        """Claim and start rollouts for the free seats. Return their number."""
        self._awaits_results = False
        free = self._seats.free
        if free <= 0 or not self.lease or self._is_behind():
            return 0
        async with self._claim_lock:
            fetched = await self._fetch(free)
            self._claim_log.works()
            if fetched.has_external:
                await self._serve_external()
            for claim, row, setting in fetched.work:
                attempt = await self._prepare(claim, row, setting)
                self._seats.take(claim, setting, self._run(claim, row, setting, attempt))
        self._count_claims(fetched.work)
        return len(fetched.work)

    async def _prepare(self, claim: Claim, row: TaskRow, setting: Setting) -> "HostedAttempt | None":
        """Prepare the attempt of a command agent or an agent server. Return None for the built-in agent."""
        wait_until_stored = partial(self._outbox.wait_until_stored, claim)
        # Imported here, because most installations have only the built-in agent.
        if setting.command is not None:
            from apps.rollouts.engine.agents.command_attempts import CommandAttempts

            self._commands = self._commands or CommandAttempts()
            return self._commands.prepare(claim, row, setting, wait_until_stored)
        if setting.agent_server is not None:
            from apps.rollouts.engine.agents.agent_server_attempts import AgentServer, AgentServerAttempt

            external = await self._serve_external()
            captured = external.capture(claim, row, setting, wait_until_stored)
            return AgentServerAttempt(external, self._outbound, AgentServer(*setting.agent_server), captured)
        return None

    async def _serve_external(self) -> "ExternalAttempts":
        """Start the server for captured agents if it does not run yet."""
        if self._external is None:
            # Imported here, because most installations have no external agents.
            from apps.rollouts.engine.agents.external_attempts import ExternalAttempts

            self._external = ExternalAttempts(self._claim_external, database=self._database)
        await self._external.serve(self.lease)
        return self._external

    async def _claim_external(self, collection_id: int) -> "ExternalAttempt | None":
        """Claim a rollout for an external agent and start its attempt. Return None if nothing can be claimed."""
        async with self._claim_lock:
            if not self.lease or self._is_behind() or self._stopping or not self._external:
                return None
            if not self._seats.has_external_seat(self._external.open_attempts):
                return None
            fetched = await self._fetch(1, only=collection_id)
            for claim, row, setting in fetched.work:
                wait_until_stored = partial(self._outbox.wait_until_stored, claim)
                attempt = self._external.prepare(claim, row, setting, wait_until_stored)
                self._seats.take(claim, setting, self._run(claim, row, setting, attempt))
        self._count_claims(fetched.work)
        return attempt if fetched.work else None

    async def _fetch(self, seats: int, only: int | None = None) -> Fetched:
        """Claim up to `seats` rollouts, of the collection `only` if given.

        Return no rollouts if the lease was lost during the claim: other workers take them over.
        """
        lease, in_use = self.lease, self._in_use()
        with self._breakers.reports() as reports:
            fetched: Fetched = await self._database.run(
                self._calls.fetch_work,
                lease=lease,
                seats=seats,
                in_use=in_use,
                reports=reports,
                started=self._started_collections,
                settings_in_use=self._settings,
                reservations=self._reservations,
                only=only,
            )
        self._awaits_results = in_use.awaits_results
        if in_use.awaits_results:
            self._outbox.store_now()
        self._seats.set_judge_limits(in_use.judge_shares)
        return fetched if lease == self.lease else Fetched([], has_external=False)

    def _count_claims(self, work: list[Work]) -> None:
        if work:
            self._has_claimed.set()
            self._meters.count("claims")
            self._meters.count("claimed", by=len(work))
            self._changes.add(one.claim.collection_id for one in work)

    def _is_behind(self) -> bool:
        """Return True if no rollout may start: results cannot be stored, too many are waiting, or memory is full."""
        return bool(self._outbox.trouble) or self._outbox.backlog > MAX_BACKLOG or self._memory.is_full

    def _in_use(self) -> InUse:
        return InUse(
            self._seats.running(),
            lease=self.lease,
            claiming=self._identity.claiming,
            group=self.group,
            judge_calls=self._seats.judges.taken(),
            unstored=self._outbox.unstored.copy(),
            claimable=self._throttles.claimable(),
            failing=self._breakers.failing_collections(),
        )

    async def _run(
        self, claim: Claim, row: TaskRow, setting: Setting, attempt: "ExternalAttempt | HostedAttempt | None"
    ) -> None:
        """Run a rollout and queue its end."""
        # Not reset afterwards: each rollout runs in a task of its own, and so in a context of its own.
        CURRENT_ROLLOUT.set(claim)
        try:
            with self._memory.account():
                make_driver = attempt.drive if attempt else None
                end = await self._calls.run_rollout(
                    claim=claim, row=row, setting=setting, listener=self._listener, make_driver=make_driver
                )
        except asyncio.CancelledError:
            self._outbox.forget(claim)
            raise
        except Exception as bug:
            logger.exception("rollout %s failed with an unhandled error", claim.rollout_id)
            end = broken_end(claim, bug)
        finally:
            if attempt:
                await attempt.close()
        if end.status == "completed":
            self._breakers.forgive(claim.collection_id)
        self._meters.count_end(end.status, end.error_kind, end.duration, end.input_tokens, end.output_tokens)
        self._outbox.add_end(end)

    async def _wait_until_woken(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()

    async def _listen(self) -> None:
        """Receive notifications. If the channel layer fails, claims are only delayed until the next poll."""
        while True:
            try:
                await self.channel_layer.receive(WORKER_CHANNEL)
                self._woken.set()
            except Exception as problem:
                LAYER.failed("listening for wake-ups", problem)
                await asyncio.sleep(POLL_SECONDS)

    async def _poll(self) -> None:
        """Poll for updates: cancelled collections, breakers, limits, other workers and drain requests."""
        for number in itertools.count(1):
            await self._wait_for_next_poll()
            try:
                await self._apply_updates()
                if number % POLLS_PER_RECONCILIATION == 0:
                    running = {claim.rollout_id for claim, _ in self._seats.running()}
                    await self._identity.release_unknown(running | self._outbox.waiting_ids())
                self._poll_log.works()
            except Exception as problem:
                self._poll_log.failed(problem)

    async def _wait_for_next_poll(self) -> None:
        """Wait for POLL_SECONDS (longer with many workers). While no rollout runs, wait for IDLE_SECONDS or a claim."""
        workers = len(self._identity.claiming)
        seconds = min(LONGEST_POLL_SECONDS, max(POLL_SECONDS, workers / POLLS_PER_SECOND))
        await asyncio.sleep(seconds)
        if not self._seats.taken:
            self._has_claimed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS - seconds):
                    await self._has_claimed.wait()

    def _read_updates(self, **given: Any) -> WorkerUpdates:
        """Read the versions of models in use, then updates. Runs on the database thread."""
        if self._seats.taken:
            self._settings.follow_versions()
        return read_updates(**given)

    async def _apply_updates(self) -> None:
        with self._breakers.reports() as reports:
            updates = await self._database.run(
                self._read_updates,
                lease=self.lease,
                running=Counter(claim.collection_id for claim, _ in self._seats.running()),
                reports=reports,
                # A concurrent claim may have reserved slots for rollouts that are not in `running` yet.
                reservations=None if self._claim_lock.locked() else self._reservations,
            )
        self._identity.claiming = updates.claiming
        self._outbox.share_database(len(updates.claiming))
        self._breakers.set_open(updates.open_breakers)
        self._throttles.limit_throttled(updates.throttled)
        self._changes.add(updates.paused)
        if updates.is_draining and not self._stopping:
            logger.info("draining: %d rollouts are still running", self._seats.taken)
            self._begin_draining()
        for claim in self._seats.cancel(updates.cancelled):
            self._outbox.add_end(cancelled_end(claim))
            self._meters.count_end("cancelled", "", 0.0, 0, 0)

    def _vitals(self) -> Vitals:
        """Return the vitals for the heartbeat. Called on the heartbeat thread."""
        backlog = self._outbox.backlog
        trouble = self._outbox.trouble or self._identity.trouble or self._database.trouble
        if not trouble and self._memory.is_full and not self._outbox.is_full:
            trouble = "The memory budget for replies is used up. No rollouts start. Increase GYMWEB_WORKER_MEMORY_MB."
        if not trouble and self._is_behind():
            trouble = f"The database is slow: {backlog:,} finished rollouts wait to be stored. No rollouts start."
        unrunnable = self._settings.refusals()
        if not trouble and unrunnable:
            collection_id, reason = next(iter(unrunnable.items()))
            others = f" (and {len(unrunnable) - 1} more)" if len(unrunnable) > 1 else ""
            trouble = f"Cannot run collection {collection_id}{others}: {reason}"
        memory = {"used": self._memory.used, "limit": self._memory.limit, "waiting": self._memory.waiting}
        return Vitals(self._seats.taken, backlog, trouble, unrunnable, {**self._meters.read(), "memory": memory})

    def _lease_lost(self, lease: int) -> None:
        """Cancel all rollouts, because other workers take them over, and restart with a new lease."""
        if lease == self.lease and not self._stopping:
            logger.warning("lease %s lost: cancelling %d rollouts", lease, self._seats.taken)
            self._identity.drop()
            self._restarting = asyncio.ensure_future(self._restart())

    async def _restart(self) -> None:
        await self._seats.cancel_all()
        await self._close_servers()  # agents need new secrets, because secrets contain the lease
        self._meters.reset()  # earlier counts stay in the row of the old lease
        await self._identity.obtain(is_wanted=lambda: not self._stopping)
        self._woken.set()

    async def _drain(self) -> None:
        """Wait for running rollouts; after `stop`, at most for the grace period. `_leave` requeues the rest."""
        # Runs concurrently, so that a hanging database does not extend the grace period.
        announcing = asyncio.create_task(self._identity.drain())
        while self._seats.taken and (left := self._leave_at - time.monotonic()) > 0:
            # In steps, because `stop` may shorten the wait, and because others count on stored results.
            await self._seats.wait(min(left, POLL_SECONDS))
            self._outbox.store_now()
        await self._seats.cancel_all()
        await announcing

    async def _close_servers(self) -> None:
        for served in (self._external, self._commands):
            if served is not None:
                await served.close()

    async def _leave(self) -> None:
        """Release the lease and close all connections and threads."""
        await self._close_servers()
        await self._identity.release()
        await self._throttles.close()
        await self._database.close()
        await self._outbound.close()
        await self._identity.join()
        self._background_jobs.close()
