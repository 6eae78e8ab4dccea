"""Run a verifier where it can be stopped: in one of a few processes, which is killed when the time is over.

A thread cannot be stopped, and a regular expression keeps the interpreter to itself while it works. So these processes
are started as programs of their own (nothing is forked from a process with threads) and used again for as long as they
answer. Waiting for a free one does not count as a verifier's time.
"""

import asyncio
import atexit
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from apps.gym.errors import VerifierError
from apps.gym.items import TaskRow
from apps.gym.rewards import Reward
from apps.gym.verifiers.framing import receive, send
from apps.gym.verifiers.protocol import Verifier, read_type

_ROOT = Path(__file__).resolve().parents[3]
_STARTING = 60.0
"""Seconds for a new process to be ready on a machine that has much to do."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "SYSTEMROOT", "TMPDIR")
"""Variables that the processes get: what runs in them sees texts that others wrote, and needs no secret."""


class _Answer(msgspec.Struct):
    reward: Reward | None = None
    error: str = ""
    passing: bool = False


_decode_answer = msgspec.json.Decoder(_Answer).decode


class Child:
    """One such process, and the socket to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "apps.gym.verifiers.child", str(theirs.fileno())],
                cwd=_ROOT,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # A terminal's Ctrl-C is for the process that owns this one.
                start_new_session=True,
            )
        self.channel = ours
        try:
            ready = receive(ours, seconds=_STARTING) == b"ready"
        except BaseException:
            self.kill()
            raise
        if not ready:
            self.kill()
            raise VerifierError("the process that runs verifiers could not be started")

    def ask(self, job: bytes, *, seconds: float) -> bytes:
        """Raises TimeoutError, and ConnectionError where the process has ended."""
        self.channel.settimeout(seconds)
        send(self.channel, job)
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
    title: str
    answer: Future[Reward]


class ProcessPool:
    """At most `size` processes, each with a thread that waits for it. They start when they are first needed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._children: set[Child] = set()
        self._idle = 0
        self._closed = False

    async def verify(self, verifier: Verifier, row: TaskRow, response: Mapping[str, Any], *, seconds: float) -> Reward:
        """Raises VerifierError: for what the verifier raised, whatever that was, and when the time is over."""
        given = {"type": read_type(verifier), **msgspec.to_builtins(verifier)}
        # Not orjson: a policy model may write whole numbers of more than 64 bits, or half a surrogate pair.
        body = json.dumps({"verifier": given, "row": row, "response": response, "seconds": seconds}).encode()
        answer: Future[Reward] = Future()
        self._jobs.put(_Job(body, seconds, verifier.title, answer))
        self._grow()
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        """End the processes; what they were doing fails."""
        with self._lock:
            self._closed = True
            children, threads = list(self._children), list(self._threads)
        for _ in threads:
            self._jobs.put(None)
        for child in children:
            child.process.kill()
        for thread in threads:
            thread.join(timeout=5)

    def _grow(self) -> None:
        with self._lock:
            if len(self._threads) < self.size and self._idle < self._jobs.qsize() and not self._closed:
                thread = threading.Thread(target=self._work, name="verifier", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _work(self) -> None:
        child: Child | None = None
        while True:
            self._count_idle(1)
            job = self._jobs.get()
            self._count_idle(-1)
            if job is None:
                break
            # Who gave up waiting wants no answer.
            if job.answer.set_running_or_notify_cancel():
                child = self._do(job, child)
        self._forget(child)

    def _count_idle(self, change: int) -> None:
        with self._lock:
            self._idle += change

    def _do(self, job: _Job, child: Child | None) -> Child | None:
        """Answer the job; the process for the next one, or None where it had to be killed."""
        try:
            child = child or self._start()
            answer = _decode_answer(child.ask(job.body, seconds=job.seconds))
        except TimeoutError:
            problem = f"{job.title}: stopped after {job.seconds:g} s without a result"
            self._forget(child)
            job.answer.set_exception(VerifierError(problem).lasting())
            return None
        except Exception as broken:
            self._forget(child)
            job.answer.set_exception(VerifierError(f"{job.title}: its process failed: {broken}"))
            return None
        if answer.reward is None:
            error = VerifierError(f"{job.title}: {answer.error}")
            job.answer.set_exception(error if answer.passing else error.lasting())
        else:
            job.answer.set_result(answer.reward)
        return child

    def _start(self) -> Child:
        child = Child()
        with self._lock:
            self._children.add(child)
        return child

    def _forget(self, child: Child | None) -> None:
        if child is not None:
            with self._lock:
                self._children.discard(child)
            child.kill()


_pools: list[ProcessPool] = []


def shared_pool() -> ProcessPool:
    """This process's pool: as many processes as it has processors, at most four."""
    if not _pools:
        _pools.append(ProcessPool(max(1, min(4, os.cpu_count() or 1))))
        atexit.register(_pools[0].close)
    return _pools[0]
