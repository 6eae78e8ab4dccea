"""Attempts of external agents: one claimed rollout each, offered to the agent that asked for it.

Web processes send commands (open, finish, fail, extend) to the worker's capture server, at which the agents also call
the model. See apps/api/attempts and docs/use/external_agents.md.
"""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web
from django.conf import settings

from apps.gym.capture.capture_server import CaptureServer
from apps.gym.capture.captured_attempt import CapturedAttempt, WaitUntilStored
from apps.gym.capture.captured_commands import CallRefused, Command, attempt_ended
from apps.gym.capture.command_paths import COMMANDS, OPEN, Open
from apps.gym.errors import AgentFailed, GymError
from apps.gym.loop.agent_loop import compose_prompt
from apps.gym.traces.items import TaskRow
from apps.rollouts.command_keys import command_key
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.database_thread import DatabaseThread
from apps.rollouts.engine.running import Setting
from apps.rollouts.models import Worker

logger = logging.getLogger(__name__)

OPEN_SECONDS = 60.0
"""Maximum seconds until an attempt can begin, for example because its environment is slow."""


class ExternalAttempt:
    """A claimed rollout and its captured attempt."""

    def __init__(
        self, claim: Claim, captured: CapturedAttempt, seconds: float, forget: Callable[["ExternalAttempt"], None]
    ) -> None:
        self.claim = claim
        self.captured = captured
        self.claimer = 0
        self.secret = ""
        self._seconds = seconds
        self._forget = forget

    def drive(self, elapsed: Callable[[], float]) -> CapturedAttempt:
        """Return the driver, with the clock of the attempt; see run_rollout."""
        self.captured.elapsed = elapsed
        return self.captured

    async def close(self) -> None:
        """Refuse further calls."""
        self._forget(self)

    def describe(self) -> dict[str, Any]:
        """Return what the agent gets: the prompt and the tools, never the fields of the verifier."""
        captured = self.captured
        harness = captured.harness
        return {
            "rollout": self.claim.rollout_id,
            "attempt": self.claim.attempt,
            "collection": self.claim.collection_id,
            "task": self.claim.task_id,
            "input": compose_prompt(captured.row, harness),
            "tools": captured.tools,
            "secret": self.secret,
            "expires_in": round(captured.expires_in, 3),
            "limits": {
                "model_calls": harness.max_steps,
                "tokens": harness.token_limit,
                "seconds": min(harness.time_limit, self._seconds),
            },
        }


class ExternalAttempts:
    """The open attempts of a worker. `claim` claims a rollout of a collection and begins its attempt."""

    def __init__(self, claim: Callable[[int], Awaitable[ExternalAttempt | None]], *, database: DatabaseThread) -> None:
        self._claim = claim
        self._database = database
        self._server: CaptureServer | None = None
        self._worker, self._address, self._is_published = 0, "", False
        self._claiming: set[asyncio.Future[Any]] = set()
        self._open: dict[tuple[int, int], ExternalAttempt] = {}

    @property
    def open_attempts(self) -> int:
        return len(self._open)

    async def serve(self, worker: int) -> None:
        """Start the capture server, unless it runs, and publish its address."""
        if self._is_published:
            return
        if self._server is None:
            server = CaptureServer(self._handle)
            self._address = await server.start(settings.CAPTURE_HOST)
            self._server, self._worker = server, worker
        await self._database.run(_publish, worker, self._address)
        self._is_published = True
        logger.info("external agents are captured at %s", self._address)

    async def close(self) -> None:
        server, self._server, self._is_published = self._server, None, False
        if server is not None:
            await server.close()

    def open(self, captured: CapturedAttempt) -> str:
        """Return a new secret of an attempt that this worker started. Raises AgentFailed without a capture server."""
        if self._server is None:
            raise AgentFailed("The capture server of the worker is not running.")
        return self._server.open(captured, self._worker)

    def capture(self, claim: Claim, row: TaskRow, setting: Setting, stored: WaitUntilStored) -> CapturedAttempt:
        """Return the driver of a claimed rollout whose calls are captured."""
        return CapturedAttempt(
            row=row,
            server=setting.server,
            policy=setting.policy,
            harness=setting.harness,
            seed=claim.seed,
            elapsed=lambda: 0.0,
            name=str(claim.rollout_id),
            stored=stored,
            lease_seconds=settings.CAPTURE_LEASE_SECONDS,
        )

    def forget(self, captured: CapturedAttempt) -> None:
        """Refuse further calls of an attempt."""
        if self._server is not None:
            self._server.forget(captured)

    def prepare(self, claim: Claim, row: TaskRow, setting: Setting, stored: WaitUntilStored) -> ExternalAttempt:
        """Return the attempt of a claimed rollout. It begins when its driver runs."""
        captured = self.capture(claim, row, setting, stored)
        attempt = ExternalAttempt(claim, captured, setting.rollout_timeout, self._drop)
        self._open[claim.rollout_id, claim.attempt] = attempt
        return attempt

    def _drop(self, attempt: ExternalAttempt) -> None:
        """Refuse further calls of an ended attempt. Repeats of its last command are answered until that is stored."""
        key = (attempt.claim.rollout_id, attempt.claim.attempt)
        ending = attempt.captured.ending
        if ending is None or ending.done():
            self._open.pop(key, None)
        else:
            ending.add_done_callback(lambda _: self._open.pop(key, None))
        if self._server is not None:
            self._server.forget(attempt.captured)

    # -- commands -----------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.Response:
        if not hmac.compare_digest(request.headers.get("Authorization", ""), f"Bearer {command_key()}"):
            return web.json_response(
                {"detail": "Only web processes of this installation may send commands."}, status=403
            )
        try:
            path = request.path.removeprefix(COMMANDS).strip("/").split("/")
            status, answer = await self._obey(path, await request.read())
        except CallRefused as refusal:
            status, answer = refusal.status, {"detail": str(refusal)}
        except GymError as problem:
            status, answer = 502, {"detail": f"The attempt could not begin: {problem}"}
        except TimeoutError:
            status, answer = 504, {"detail": f"The attempt could not begin within {OPEN_SECONDS:g} s."}
        except Exception as problem:
            logger.exception("a command of a web process failed")
            status, answer = 503, {"detail": f"The worker could not obey: {type(problem).__name__}."}
        return web.json_response(answer, status=status, dumps=lambda value: msgspec.json.encode(value).decode())

    async def _obey(self, path: list[str], body: bytes) -> tuple[int, dict[str, Any]]:
        if path == [OPEN]:
            given = msgspec.json.decode(body, type=Open)
            return await self._begin(given.collection, given.claimer)
        rollout, number, command = path
        attempt = self._open.get((int(rollout), int(number)))
        if attempt is None:
            raise CallRefused(410, "The attempt has ended.", "attempt_ended")
        end = msgspec.json.decode(body, type=Command)
        if end.claimer != attempt.claimer:
            raise CallRefused(403, "Another user claimed this attempt.", "not_yours")
        if command == "describe":
            return 200, self._describe(attempt)
        if command == "extend":
            attempt.captured.extend()
            return 200, self._describe(attempt)
        ended = await attempt.captured.end(end)
        return 202, {"rollout": attempt.claim.rollout_id, "attempt": attempt.claim.attempt, "command": ended.command}

    async def _begin(self, collection: int, claimer: int) -> tuple[int, dict[str, Any]]:
        if self._server is None:
            return 204, {}
        # Its own task: if the web process disconnects meanwhile, the claimed rollout must return to the queue.
        claiming = asyncio.ensure_future(self._claim(collection))
        self._claiming.add(claiming)
        claiming.add_done_callback(self._claiming.discard)
        try:
            attempt = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claiming.add_done_callback(_abandon)
            raise
        if attempt is None:
            return 204, {}
        try:
            return await self._offer(attempt, claimer)
        except BaseException:
            attempt.captured.abandon()
            raise

    def _describe(self, attempt: ExternalAttempt) -> dict[str, Any]:
        return {**attempt.describe(), "address": self._address if settings.CAPTURE_DIRECT else ""}

    async def _offer(self, attempt: ExternalAttempt, claimer: int) -> tuple[int, dict[str, Any]]:
        async with asyncio.timeout(OPEN_SECONDS):
            await asyncio.shield(attempt.captured.opened)
        if self._server is None or attempt.captured.is_closed:
            raise attempt_ended()
        attempt.claimer = claimer
        attempt.secret = self._server.open(attempt.captured, self._worker)
        return 201, self._describe(attempt)


def _abandon(claiming: "asyncio.Future[ExternalAttempt | None]") -> None:
    if not claiming.cancelled() and claiming.exception() is None and (attempt := claiming.result()):
        attempt.captured.abandon()


def _publish(worker: int, address: str) -> None:
    Worker.objects.filter(pk=worker).update(capture_address=address)
