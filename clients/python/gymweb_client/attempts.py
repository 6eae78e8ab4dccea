"""Attempts of external agents: take a task, let the agent work, finish."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from gymweb_client.errors import NothingQueued, TimeIsUp
from gymweb_client.rows import Row

Request = Callable[..., Awaitable[Any]]


class Attempt(AbstractAsyncContextManager["Attempt"]):
    """One attempt at a task. Leaving `async with` finishes it, or fails it if an exception was raised.

    `input` is the prompt; `tools` are the tools of the environment. The agent calls the model at `openai_base_url` or
    `anthropic_base_url` with `api_key`, and tools at `mcp_url`.
    """

    def __init__(self, request: Request, offer: Row) -> None:
        self.rollout: int = offer["rollout"]
        self.number: int = offer["attempt"]
        self.input: list[Row] = offer["input"]
        self.tools: list[Row] = offer["tools"]
        self.openai_base_url: str = offer["openai_base_url"]
        self.anthropic_base_url: str = offer["anthropic_base_url"]
        self.mcp_url: str = offer["mcp_url"]
        self.api_key: str = offer["api_key"]
        self.limits: Row = offer["limits"]
        self.offer = offer
        self._request = request
        self._has_ended = False

    @property
    def prompt(self) -> str:
        """Return the texts of the prompt, joined by empty lines."""
        return "\n\n".join(item["content"] for item in self.input if isinstance(item.get("content"), str))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_ended:
            return
        if error is None:
            await self.finish()
        else:
            await self.fail(f"{type(error).__name__}: {error}"[:10_000])

    async def finish(self, answer: str = "", *, artifacts: Row | None = None, call: int | None = None) -> None:
        """End the attempt, which is then verified. `answer` is needed if it differs from the last reply's text."""
        given = {"answer": answer or None, "artifacts": artifacts, "call": call}
        await self._end("finish", {name: value for name, value in given.items() if value is not None})

    async def fail(self, message: str) -> None:
        """Report that the agent failed. The rollout gets another attempt if its collection allows one."""
        await self._end("fail", {"message": message})

    async def extend(self) -> None:
        """Keep the attempt open without a call of the model, for example while a tool runs."""
        await self._request("POST", f"attempts/{self.rollout}/extend/", {"attempt": self.number})

    async def result(self, seconds: float = 600.0) -> Row:
        """Wait until the rollout has ended, and return it with its reward. Raise TimeIsUp after `seconds`."""
        until = time.monotonic() + seconds
        while (row := await self._request("GET", f"rollouts/{self.rollout}/"))["status"] in {"queued", "running"}:
            if time.monotonic() >= until:
                raise TimeIsUp(f"Rollout {self.rollout} is still {row['status']} after {seconds:g} s.")
            await asyncio.sleep(0.2)
        return dict(row)

    async def _end(self, command: str, body: Row) -> None:
        path = f"attempts/{self.rollout}/{command}/"
        # An equal command gets the same answer, so a lost answer does no harm.
        key = f"{command}-{self.rollout}-{self.number}"
        await self._request("POST", path, {"attempt": self.number, **body}, idempotency_key=key)
        self._has_ended = True


class OpeningAttempt(AbstractAsyncContextManager[Attempt]):
    """An attempt to be taken: `await` it, or enter it."""

    def __init__(self, request: Request, collection: int, wait_seconds: float) -> None:
        self._request, self._collection, self._wait_seconds = request, collection, wait_seconds
        self._attempt: Attempt | None = None

    def __await__(self) -> Generator[Any, None, Attempt | None]:
        return self._take().__await__()

    async def __aenter__(self) -> Attempt:
        self._attempt = await self._take()
        if self._attempt is None:
            raise NothingQueued(f"No rollout of collection {self._collection} is queued.")
        return self._attempt

    async def __aexit__(self, *error: Any) -> None:
        if self._attempt is not None:
            await self._attempt.__aexit__(*error)

    async def _take(self) -> Attempt | None:
        body = {"collection": self._collection, "wait_seconds": self._wait_seconds}
        offer = await self._request("POST", "attempts/", body, idempotency_key=uuid.uuid4().hex)
        return Attempt(self._request, offer) if offer else None
