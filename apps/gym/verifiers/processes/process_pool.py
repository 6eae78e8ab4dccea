"""Run verifiers in a few processes that are killed at the time limit.

A thread cannot be stopped, and a regular expression blocks the interpreter while it runs. The processes are started as
separate programs (nothing is forked from a process with threads) and reused as long as they answer. Waiting for a free
one does not count as a verifier's time.

Environments take turns. Jobs of one environment run in order, in at most its share of the processes. After a time-out
it gets only one process, until a verification ends in time again.
"""

import asyncio
import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from apps.gym.errors import VerifierError, VerifierTooSlow
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.processes.framing import receive, send
from apps.gym.verifiers.protocol import Verifier, read_type

_ROOT = Path(__file__).resolve().parents[4]
_STARTING = 60.0
"""Seconds for a new process to become ready on a heavily loaded machine."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "SYSTEMROOT", "TMPDIR")
"""Environment variables of the processes. They handle untrusted text and need no secrets."""


class _Answer(msgspec.Struct):
    reward: Reward | None = None
    error: str = ""
    transient: bool = False


_decode_answer = msgspec.json.Decoder(_Answer).decode


class Child:
    """One process and its socket."""

    def __init__(self, module: str = "apps.gym.verifiers.processes.child") -> None:
        ours, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", module, str(theirs.fileno())],
                cwd=_ROOT,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # A terminal's Ctrl-C is only meant for the parent process.
                start_new_session=True,
            )
        self.channel = ours
        self._prepared: set[str] = set()
        try:
            if receive(ours, seconds=_STARTING) != b"ready":
                raise VerifierError(f"the process of {module} could not be started")
        except BaseException:
            self.kill()
            raise

    def prepare(self, verifier: str) -> None:
        """Let the process import what this type of verifier needs, which takes seconds. Raises VerifierError."""
        if verifier not in self._prepared:
            send(self.channel, json.dumps({"prepare": verifier}).encode())
            if receive(self.channel, seconds=_STARTING) != b"ready":
                raise VerifierError("the process that runs verifiers could not import what it needs")
            self._prepared.add(verifier)

    def ask(self, job: bytes, *, seconds: float) -> bytes:
        """Return the answer to a job. Raises TimeoutError, and ConnectionError if the process has ended."""
        self.start(job, seconds=seconds)
        return self.wait(seconds=seconds)

    def start(self, job: bytes, *, seconds: float) -> None:
        """Send a job, whose answer `wait` returns. Raises like `ask`."""
        self.channel.settimeout(seconds)
        send(self.channel, job)

    def wait(self, *, seconds: float) -> bytes:
        """Return the answer to the job sent. Raises like `ask`."""
        answer = receive(self.channel, seconds=seconds)
        if not answer:
            raise ConnectionError("the process has ended")
        return answer

    def kill(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()


class _Job(msgspec.Struct):
    body: bytes
    seconds: float
    verifier: str
    title: str
    whose: str
    answer: Future[Reward]


class ProcessPool:
    """At most `size` processes for one environment, and `spare` ones for others.

    Each has a thread that waits for it. Processes start when they are first needed.
    """

    def __init__(self, size: int, *, spare: int = 0) -> None:
        self.size = size
        self._total = size + spare
        # The lock for all attributes below. The next waiting job is first.
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._running: Counter[str] = Counter()
        self._stopped: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._children: set[Child] = set()
        self._idle = 0
        self._closed = False

    async def verify(
        self, verifier: Verifier, row: TaskRow, response: Mapping[str, Any], *, seconds: float, whose: str = ""
    ) -> Reward:
        """Run a verifier.

        `whose` names the environment. Raises VerifierError for any error of the verifier, and for a time-out.
        """
        given = {"type": read_type(verifier), **msgspec.to_builtins(verifier)}
        # Not orjson, because a model may write integers of more than 64 bits or half a surrogate pair.
        body = json.dumps({"verifier": given, "row": row, "response": response, "seconds": seconds}).encode()
        answer: Future[Reward] = Future()
        self._put(_Job(body, seconds, given["type"], verifier.title, whose, answer))
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        """End the processes; running and waiting jobs fail."""
        with self._changed:
            self._closed = True
            children, threads = list(self._children), list(self._threads)
            left = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting.clear()
            self._changed.notify_all()
        for job in left:
            _answer(job, _closed(job))
        for child in children:
            child.process.kill()
        for thread in threads:
            thread.join(timeout=5)

    def _put(self, job: _Job) -> None:
        with self._changed:
            if self._closed:
                raise _closed(job)
            self._waiting.setdefault(job.whose, deque()).append(job)
            ready = sum(min(len(jobs), self._room(whose)) for whose, jobs in self._waiting.items())
            if len(self._threads) < self._total and self._idle < ready:
                thread = threading.Thread(target=self._work, name="verifier", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def _room(self, whose: str) -> int:
        """Return how many more of its jobs may start."""
        share = 1 if whose in self._stopped else self.size
        return max(0, share - self._running[whose])

    def _take(self) -> _Job | None:
        """Return the next job, or None when the pool is closed."""
        with self._changed:
            self._idle += 1
            try:
                while not self._closed:
                    whose = next((whose for whose in self._waiting if self._room(whose)), None)
                    if whose is None:
                        self._changed.wait()
                        continue
                    job = self._waiting[whose].popleft()
                    if self._waiting[whose]:
                        self._waiting.move_to_end(whose)
                    else:
                        del self._waiting[whose]
                    # A cancelled job needs no answer.
                    if job.answer.set_running_or_notify_cancel():
                        self._running[whose] += 1
                        return job
                return None
            finally:
                self._idle -= 1

    def _work(self) -> None:
        child: Child | None = None
        while job := self._take():
            child, found, in_time = self._do(job, child)
            with self._changed:
                self._running[job.whose] -= 1
                if not self._running[job.whose]:
                    del self._running[job.whose]
                (self._stopped.discard if in_time else self._stopped.add)(job.whose)
                self._changed.notify_all()
            _answer(job, found)
        self._forget(child)

    def _do(self, job: _Job, child: Child | None) -> tuple[Child | None, Reward | VerifierError, bool]:
        """Return the process for the next job (None if it was killed), the result, and whether it was in time."""
        if child is not None and child.process.poll() is not None:
            # Killed while idle, perhaps for lack of memory: no verification was lost.
            self._forget(child)
            child = None
        try:
            child = child or self._start()
            child.prepare(job.verifier)
            answer = _decode_answer(child.ask(job.body, seconds=job.seconds))
        except TimeoutError:
            problem = f"{job.title}: stopped after {job.seconds:g} s without a result"
            self._forget(child)
            return None, VerifierTooSlow(problem).permanent(), False
        except Exception as broken:
            self._forget(child)
            return None, VerifierError(f"{job.title}: its process failed: {broken}"), True
        if answer.reward is None:
            error = VerifierError(f"{job.title}: {answer.error}")
            return child, error if answer.transient else error.permanent(), True
        return child, answer.reward, True

    def _start(self) -> Child:
        child = Child()
        with self._changed:
            if not self._closed:
                self._children.add(child)
                return child
        # It was starting when the pool closed, so the pool did not know it.
        child.kill()
        raise VerifierError("this process ends")

    def _forget(self, child: Child | None) -> None:
        if child is not None:
            with self._changed:
                self._children.discard(child)
            child.kill()


def _closed(job: _Job) -> VerifierError:
    return VerifierError(f"{job.title}: this process ends, and verifies no more")


def _answer(job: _Job, found: Reward | VerifierError) -> None:
    if isinstance(found, Reward):
        job.answer.set_result(found)
    # A waiting job may be cancelled at any time.
    elif job.answer.running() or job.answer.set_running_or_notify_cancel():
        job.answer.set_exception(found)


_SPARE = 2


@cache
def shared_pool() -> ProcessPool:
    """Return this process's pool: for one environment, as many processes as processors, at most four."""
    pool = ProcessPool(max(1, min(4, os.cpu_count() or 1)), spare=_SPARE)
    atexit.register(pool.close)
    return pool
