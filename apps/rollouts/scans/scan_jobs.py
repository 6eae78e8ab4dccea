"""Background job: ask the judges of running scans, one rollout per call, and store each answer once."""

import asyncio
import secrets
import time
from typing import NamedTuple

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import is_due, retry_until_available
from apps.accounts.outages import is_transient
from apps.gym import process_exit
from apps.gym.calls.outbound import Outbound
from apps.gym.errors import GymError, PolicyError
from apps.gym.judging.judge import Judge
from apps.gym.judging.scale import JudgeSettings
from apps.gym.judging.transcript_questions import Answer, Question
from apps.gym.redaction.shortening import cut_clean
from apps.gym.traces.events import JudgeCall
from apps.policies.installation_redactor import fresh_redactor
from apps.policies.policy_clients import connect_policy, open_outbound
from apps.rollouts.engine.circuit_breakers import Endpoint
from apps.rollouts.engine.throttling import Throttles
from apps.rollouts.models import Scan, ScanAnswer
from apps.rollouts.reverification.ownership import REFUSED_WAIT
from apps.rollouts.scans.rollout_leases import claim_rollouts, leased_rows, release_rollouts, renew_leases
from apps.rollouts.scans.scan_estimates import read_events
from apps.rollouts.search.filters.filter_grammar import write_number

TURN_SECONDS = 20.0
"""How long a worker works on one scan while other scans wait."""
IN_FLIGHT = 64
"""Maximum rollouts in the memory of a worker."""
WAIT_SECONDS = 1.0
MAX_TRIES = 3
"""Number of tries after which a failure of the judge is stored as the error of the rollout."""
MAX_CONSECUTIVE_FAILURES = 20
"""Consecutive failed calls after which the scan pauses."""
MAX_MESSAGE = 2_000


class _Outcome(NamedTuple):
    row: ScanAnswer
    answer: Answer | None
    error: Exception | None
    calls: list[JudgeCall]

    @property
    def may_succeed_later(self) -> bool:
        error = self.error
        if not isinstance(error, GymError):
            return False
        return bool(error.refused_by) or (error.transient and self.row.tries < MAX_TRIES)


@background_job(thread="scans", waiting=lambda: Scan.objects.filter(state=Scan.State.RUNNING))
def continue_scans() -> bool:
    """Background job: ask the judge of the scan that has waited longest. Return True if a rollout was asked about."""
    due = Scan.objects.filter(is_due(), state=Scan.State.RUNNING).select_related("judge_model")
    return any(continue_scan(scan) for scan in due.order_by("touched_at", "pk"))


def continue_scan(scan: Scan, *, seconds: float = TURN_SECONDS) -> bool:
    """Ask about rollouts of a scan for about `seconds`. Return True if there was one to ask about."""
    lease = secrets.randbits(62)
    first = claim_rollouts(scan, lease=lease, limit=min(IN_FLIGHT, scan.judge_model.concurrency))
    if not first:
        return False
    throttles = Throttles()
    # One event loop for the turn, because connections belong to a loop. Database queries run outside the loop.
    with asyncio.Runner() as runner:
        outbound = runner.run(_open_outbound())
        try:
            judge = _connect(scan, outbound, throttles)
            _Turn(scan, judge, runner, lease).run(first, until=time.monotonic() + seconds)
        except PolicyError as error:
            _pause(scan, f"The judge {scan.judge_model.slug} cannot be connected: {error}")
        finally:
            runner.run(throttles.close())
            runner.run(outbound.close())
            release_rollouts(lease)
    return True


async def _open_outbound() -> Outbound:
    return open_outbound()


def _connect(scan: Scan, outbound: Outbound, throttles: Throttles) -> Judge:
    model = scan.judge_model
    asked = JudgeSettings(max_characters=scan.max_characters, structured_output=scan.structured_output)
    seconds = model.call_timeout * model.max_tries
    policy = connect_policy(model, outbound, gate=throttles.gate(Endpoint("policy_model", model.pk)))
    return Judge(policy, name=model.slug, settings=asked, sampling=model.sampling, call_timeout=seconds)


def _pause(scan: Scan, message: str) -> None:
    running = Scan.objects.filter(pk=scan.pk, state=Scan.State.RUNNING)
    running.update(state=Scan.State.PAUSED, message=cut_clean(message, 500))


def _read(row: ScanAnswer) -> dict[int, str] | Exception:
    """Return the transcript, or the error of an unreadable trace."""
    try:
        return read_events(row.rollout)
    except Exception as error:
        if is_transient(error):
            raise
        return error


class _Turn:
    """The rollouts of a scan that this worker asks about."""

    def __init__(self, scan: Scan, judge: Judge, runner: asyncio.Runner, lease: int) -> None:
        self._scan, self._judge, self._runner, self._lease = scan, judge, runner, lease
        self._running: set[asyncio.Task[_Outcome]] = set()
        self._failures = 0
        self._renewed = time.monotonic()

    def run(self, first: list[ScanAnswer], *, until: float) -> None:
        """Ask about `first` and further rollouts until the time is up. Raise Leaving on shutdown."""
        rows: list[ScanAnswer] | None = first
        try:
            while rows is not None:
                self._start(rows)
                if not self._running:
                    return
                if not self._store(self._runner.run(self._wait())):
                    return
                process_exit.check()
                self._renew()
                rows = self._claim() if time.monotonic() < until else []
        finally:
            self._runner.run(self._cancel())

    def _renew(self) -> None:
        if time.monotonic() - self._renewed > settings.WORKER_LEASE_SECONDS / 3:
            renew_leases(self._lease)
            self._renewed = time.monotonic()

    def _claim(self) -> list[ScanAnswer] | None:
        return claim_rollouts(self._scan, lease=self._lease, limit=IN_FLIGHT - len(self._running))

    def _start(self, rows: list[ScanAnswer]) -> None:
        question = self._scan.judge_question
        for row in rows:
            asking = self._ask(row, question, _read(row))
            self._running.add(self._runner.get_loop().create_task(asking))

    async def _ask(self, row: ScanAnswer, question: Question, transcript: dict[int, str] | Exception) -> _Outcome:
        judgement = self._judge.open_judgement(seed=row.rollout.seed)
        try:
            if isinstance(transcript, Exception):
                raise transcript
            answer = await judgement.answer(question, transcript)
        except Exception as error:
            # Catch everything: an error in one rollout must not cancel the paid calls for the others.
            return _Outcome(row, None, error, judgement.calls)
        return _Outcome(row, answer, None, judgement.calls)

    async def _wait(self) -> list[_Outcome]:
        done, self._running = await asyncio.wait(
            self._running, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        return [task.result() for task in done]

    async def _cancel(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _store(self, outcomes: list[_Outcome]) -> bool:
        """Store the outcomes. Return False if the judge accepts no calls for now."""
        # Paid answers wait in memory while the database is unavailable.
        retry_until_available(lambda: self._write(outcomes))
        for outcome in outcomes:
            error = outcome.error
            if isinstance(error, GymError) and error.refused_by:
                message = cut_clean(str(error), 500)
                retry_at = timezone.now() + REFUSED_WAIT
                Scan.objects.filter(pk=self._scan.pk).update(retry_at=retry_at, message=message)
                return False
            self._failures = self._failures + 1 if isinstance(error, GymError) and error.transient else 0
            if self._failures >= MAX_CONSECUTIVE_FAILURES:
                _pause(self._scan, f"The judge failed {MAX_CONSECUTIVE_FAILURES} times in a row: {error}")
                return False
        return True

    def _write(self, outcomes: list[_Outcome]) -> None:
        counts = {"answered": 0, "failed": 0}
        with transaction.atomic():
            for outcome in outcomes:
                row = leased_rows(self._lease).filter(pk=outcome.row.pk)
                if outcome.may_succeed_later:
                    release_rollouts(self._lease, [outcome.row.pk])
                elif row.update(**self._fields(outcome)):
                    counts["failed" if outcome.error else "answered"] += 1
            Scan.objects.filter(pk=self._scan.pk).update(
                touched_at=timezone.now(),
                cost=F("cost") + sum(map(self._cost, outcomes)),
                **{name: F(name) + number for name, number in counts.items()},
                **({"message": ""} if counts["answered"] else {}),
            )

    def _cost(self, outcome: _Outcome) -> float:
        return sum(self._scan.judge_model.prices.cost(call.usage) for call in outcome.calls)

    def _fields(self, outcome: _Outcome) -> dict[str, object]:
        fields: dict[str, object] = {
            "attempt": outcome.row.rollout.attempt,
            "cost": self._cost(outcome),
            "lease": None,
            "leased_until": None,
        }
        if outcome.answer is None:
            error = outcome.error
            told = str(error) if isinstance(error, GymError) else f"{type(error).__name__}: {error}"
            message = cut_clean(told, MAX_MESSAGE).replace("\0", "").encode(errors="replace").decode()
            return fields | {"state": ScanAnswer.State.FAILED, "error": message}
        said, redactor = outcome.answer, fresh_redactor()
        citations, _ = redactor.redact_value(msgspec.to_builtins(said.citations))
        return fields | {
            "state": ScanAnswer.State.ANSWERED,
            "answer": said.value if isinstance(said.value, str) else write_number(said.value),
            "number": None if isinstance(said.value, str) else said.value,
            "reason": redactor.redact_text(said.reason)[0].replace("\0", ""),
            "citations": citations,
        }
