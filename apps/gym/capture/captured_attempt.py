"""One attempt of an agent that runs elsewhere: its model calls are captured, then the attempt is verified.

The agent calls the model through this object (see capture_server), and ends the attempt with a command. All calls run
in the context of the attempt, so that waits for a throttled model stop its clock.
"""

import asyncio
import contextvars
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from apps.gym.capture.capture_wires import Wish, choose_sampling
from apps.gym.capture.environment_tools import PendingCalls
from apps.gym.errors import AgentFailed, AgentLost, GymError, PolicyError
from apps.gym.loop.agent_loop import Harness, StopReason, compose_prompt, resolve_sampling
from apps.gym.loop.attempt_driver import SessionDriver
from apps.gym.resources.protocol import ResourceServer, Session
from apps.gym.traces.call_records import Place
from apps.gym.traces.events import AgentEnd, ModelCall, Prompt, SessionOpened, ToolResult, TraceUnion
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import TaskRow, Tool
from apps.gym.traces.parents import ParentFinder
from apps.gym.traces.tokens import pack_tokens
from apps.gym.wires.chat_deltas import OnDelta
from apps.gym.wires.protocol import Ask, Policy, Reply, reseed
from apps.gym.wires.tool_names import bare_name, bare_response

LEASE_SECONDS = 120.0
"""Seconds without a call or a command after which the agent counts as lost."""
LAST_CALLS_SECONDS = 30.0
"""Seconds that a finished attempt waits for calls in flight."""
MAX_IN_FLIGHT = 64
"""Maximum calls of one attempt at a time."""
MAX_UNSTORED = 16
"""Calls of one attempt that wait for the database at which the next call waits too."""
KEPT_IDS = 64
"""Calls whose token ids are kept in memory."""
KEPT_REPLIES = 64
"""Replies that are kept for clients that repeat a request."""

Result = TypeVar("Result")
Stored = Callable[[], Awaitable[None]]
"""Return once all events that were reported so far are in the database. Raises if they cannot be stored."""


class CallRefused(Exception):
    """Raised if the attempt accepts no such call. `status` is that of the HTTP reply."""

    def __init__(self, status: int, message: str, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """How the agent ends its attempt.

    `call` is the number of the call with the final answer, if it is not the last. `claimer` is the id of the user who
    claimed the attempt.
    """

    command: Literal["finish", "fail"]
    answer: str = ""
    artifacts: dict[str, Any] = {}
    call: int = 0
    message: str = ""
    claimer: int = 0

    @property
    def sha256(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


class Call(NamedTuple):
    """A call in progress. Its task ends when the reply is stored."""

    number: int
    reply: asyncio.Task[Reply]


class CapturedAttempt(SessionDriver):
    """Iterate `events()` once. The other methods are called by the agent, in the same event loop."""

    def __init__(
        self,
        *,
        row: TaskRow,
        server: ResourceServer,
        policy: Policy,
        harness: Harness,
        seed: int,
        elapsed: Callable[[], float],
        name: str,
        stored: Stored,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        super().__init__(row=row, server=server, prompt=harness.prompt, seed=seed, elapsed=elapsed)
        self.harness = harness
        self.name = name
        self.tools: list[Tool] = []
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the agent may begin; has the error of an attempt that could not begin."""
        self.at_limit = asyncio.Event()
        """Set when the attempt reaches a limit of its agent."""
        self.calls = self.tokens = 0
        self._policy, self._stored, self._lease_seconds = policy, stored, lease_seconds
        self._parents: dict[int, int] = {}
        self._captured: set[int] = set()  # calls with tokens
        self._ids: dict[int, bytes] = {}  # packed token ids by call
        self._events: asyncio.Queue[tuple[TraceUnion, asyncio.Future[None]] | None] = asyncio.Queue()
        self._running: set[asyncio.Task[Any]] = set()
        self._replies: dict[bytes, Call] = {}
        self._unserved: set[int] = set()
        self._pending = PendingCalls()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._limit: StopReason | None = None
        self._end: AgentEnd | None = None
        self._end_stored: asyncio.Task[None] | None = None
        self._is_closed = False
        self._policy_error: PolicyError | None = None
        self._session: Session | None = None

    # -- events -------------------------------------------------------------------------------------------------------

    async def events(self) -> AsyncIterator[TraceUnion]:
        """Yield every event in order; see AttemptDriver."""
        self._context = contextvars.copy_context()
        try:
            async for event in super().events():
                yield event
        except BaseException as problem:
            if not self.opened.done():
                why = problem if isinstance(problem, GymError) else AgentLost(f"The attempt did not begin: {problem!r}")
                self.opened.set_exception(why)
                self.opened.exception()  # Retrieved: the agent may no longer wait for it.
            raise
        finally:
            await self._close()

    async def _attempt(self, session: Session) -> AsyncIterator[TraceUnion]:
        self._session = session
        offered = await session.list_tools()
        self.tools = self.row["responses_create_params"].get("tools") or offered
        self.sampling = resolve_sampling(self.row, self.harness, self.seed)
        self._finder = ParentFinder(self.tools)
        yield SessionOpened(environment=self.server.name, tools=self.tools, seed=self.seed, duration=self.elapsed())
        yield Prompt(items=compose_prompt(self.row, self.harness), at=self.elapsed())
        self.renew()
        self.opened.set_result(None)
        async for event in self._reported():
            yield event
        end = self._end
        if end is not None and end.command == "fail":
            raise self._policy_error or AgentFailed(end.message or "The agent gave no reason.")
        stop_reason = self._limit or "answered"
        names = frozenset(str(tool.get("name", "")) for tool in self.tools)
        response = bare_response(TraceGraph(self.trace).main, self.row, names, stop_reason)
        async for verdict in self._verify(session, response, stop_reason):
            yield verdict

    async def _reported(self) -> AsyncIterator[TraceUnion]:
        """Yield calls and tool results as they end, up to the end of the attempt."""
        while not (self._limit is not None and not self._running and self._events.empty()):
            try:
                async with asyncio.timeout_at(self._expires_at):
                    reported = await self._events.get()
            except TimeoutError:
                if self._running:
                    self.renew()
                elif asyncio.get_running_loop().time() >= self._expires_at and self._end is None:
                    raise self._lost() from None
                continue
            if reported is None:
                continue
            event, kept = reported
            yield event
            # The consumer has taken the event, so the database will get it.
            if not kept.done():
                kept.set_result(None)
            if isinstance(event, AgentEnd):
                return
            if self._waiting and self._events.qsize() < MAX_UNSTORED:
                self._waiting.popleft().set_result(None)

    def _lost(self) -> GymError:
        problem = AgentLost(f"The agent was silent for {self._lease_seconds:g} s.")
        return self._policy_error or problem

    async def _report(self, event: TraceUnion) -> None:
        """Return once the event is stored."""
        kept = asyncio.get_running_loop().create_future()
        self._events.put_nowait((event, kept))
        await kept
        await self._stored()

    async def _close(self) -> None:
        self._is_closed = True
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        while not self._events.empty():
            if reported := self._events.get_nowait():
                reported[1].cancel()
        for waiting in self._waiting:
            waiting.cancel()

    # -- called by the agent ------------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Extend the lease of the agent."""
        self._expires_at = asyncio.get_running_loop().time() + self._lease_seconds

    def reach_limit(self, limit: StopReason) -> None:
        """Refuse further calls, and have the attempt verified after those in flight."""
        if not self._is_closed:
            self._limit = limit
            self._is_closed = True
            self.at_limit.set()
            self._events.put_nowait(None)

    @property
    def expires_in(self) -> float:
        """Return the seconds until the agent counts as lost."""
        return max(0.0, self._expires_at - asyncio.get_running_loop().time())

    def ask(
        self,
        wish: Wish,
        *,
        wire: str,
        digest: bytes,
        is_repeated: bool,
        hint: str = "",
        on_delta: OnDelta | None = None,
    ) -> Call:
        """Start a call of the model. Raises CallRefused.

        `digest` identifies the request. If a client says that it repeats a request, it gets the reply of the first one,
        without deltas. `hint` tells lines of conversation apart, for example the thread id that an agent sends.
        """
        self._check_open()
        if is_repeated and (known := self._replies.get(digest)) is not None and not _has_failed(known.reply):
            return known
        if (limit := self._reached_limit()) is not None:
            self.reach_limit(limit)
            raise CallRefused(400, f"The attempt has reached its limit ({limit}) and is verified now.", "limit_reached")
        if len(self._running) >= MAX_IN_FLIGHT:
            raise CallRefused(429, f"At most {MAX_IN_FLIGHT} calls of an attempt run at a time.", "too_many_calls")
        self.calls += 1
        place = self._finder.arrive(wish.items, wish.tools, hint=hint)
        call = Call(place.call, self._start(self._call(wish, place, wire, on_delta)))
        self._replies[digest] = call
        if len(self._replies) > KEPT_REPLIES:
            del self._replies[next(iter(self._replies))]
        return call

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool of the environment. Raises CallRefused and the errors of the environment."""
        self._check_open()
        known = frozenset(str(tool.get("name", "")) for tool in self.tools)
        call_id = self._pending.take(name, arguments, known, bare_name)
        return await outcome(self._start(self._call_tool(bare_name(name, known), call_id, arguments)))

    def mark_served(self, call: Call, *, is_whole: bool) -> None:
        """Note whether the client received the whole reply of a call."""
        if is_whole:
            self._unserved.discard(call.number)
        else:
            self._unserved.add(call.number)

    async def end(self, command: Command) -> AgentEnd:
        """End the attempt. Return once this is stored.

        Calls in flight may end first, for at most LAST_CALLS_SECONDS. The first command counts: an equal one gets the
        same answer. Raises CallRefused for a different one.
        """
        if self._end is None:
            self._check_open()
            self._is_closed = True
            self._end = AgentEnd(
                command=command.command,
                answer=command.answer,
                artifacts=command.artifacts,
                call=command.call,
                message=command.message,
                sha256=command.sha256,
            )
            # Its own task, because the client may disconnect meanwhile.
            self._end_stored = asyncio.get_running_loop().create_task(
                self._store_end(self._end), context=self._context.copy()
            )
        if self._end.sha256 != command.sha256:
            raise CallRefused(409, f"The attempt already ended with another {self._end.command}.", "attempt_ended")
        assert self._end_stored is not None
        await outcome(self._end_stored)
        return self._end

    async def _store_end(self, end: AgentEnd) -> None:
        running = list(self._running)
        if running:
            _, late = await asyncio.wait(running, timeout=LAST_CALLS_SECONDS)
            for task in late:
                task.cancel()
        end.unserved = sorted(self._unserved)
        end.at = self.elapsed()
        await self._report(end)

    def _check_open(self) -> None:
        if self._is_closed:
            raise CallRefused(409, "The attempt has ended.", "attempt_ended")
        self.renew()

    def _reached_limit(self) -> StopReason | None:
        if self.calls >= self.harness.max_steps:
            return "max_steps"
        if self.elapsed() > self.harness.time_limit:
            return "time_limit"
        return "token_limit" if self.tokens >= self.harness.token_limit else None

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved: the client may have disconnected.
        self.renew()
        self._events.put_nowait(None)  # The last call of an attempt at its limit.

    async def _call(self, wish: Wish, place: Place, wire: str, on_delta: OnDelta | None) -> Reply:
        while self._events.qsize() >= MAX_UNSTORED:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        began = self.elapsed()
        sampling = choose_sampling(wish, self.sampling, reseed(self.sampling, place.call + 1)["seed"])
        try:
            reply = await self._policy.ask(
                Ask(items=wish.items, tools=wish.tools, sampling=sampling, session=self.name, on_delta=on_delta)
            )
        except BaseException as problem:
            self._finder.abandon(place.call)
            self._policy_error = problem if isinstance(problem, PolicyError) else self._policy_error
            raise
        self._policy_error = None
        self.tokens += reply.usage.get("input_tokens", 0) + reply.usage.get("output_tokens", 0)
        place = self._finder.complete(place.call, reply.items, reply.tokens)
        call = ModelCall(
            **{name: getattr(place, name) for name in place.__struct_fields__},
            seen=place.seen,
            wire=wire,
            notes=wish.notes,
            items=reply.items,
            model=reply.model,
            version=reply.version,
            response_id=reply.response_id,
            finish_reason=reply.finish_reason,
            server_finish_reason=reply.server_finish_reason,
            usage=reply.usage,
            sampling=sampling if reply.sampling is None else reply.sampling,
            retries=reply.retries,
            tokens=self._pack(place, reply),
            tokens_note=reply.tokens_note,
            at=began,
            duration=self.elapsed() - began,
        )
        self._pending.add(reply.items)
        await self._report(call)
        return reply

    def _pack(self, place: Place, reply: Reply) -> bytes | None:
        """Pack the tokens against those of the nearest ancestor, or whole if that ancestor was long ago."""
        self._parents[place.call] = place.parent
        if reply.tokens is None:
            return None
        ancestor = place.parent
        while ancestor and ancestor not in self._captured:
            ancestor = self._parents.get(ancestor, 0)
        packed = pack_tokens(reply.tokens, before=self._ids.get(ancestor, b""))
        self._captured.add(place.call)
        self._ids[place.call] = reply.tokens.ids
        if len(self._ids) > KEPT_IDS:
            del self._ids[next(iter(self._ids))]
        return packed

    async def _call_tool(self, name: str, call_id: str, arguments: dict[str, Any]) -> ToolResult:
        assert self._session is not None
        began = self.elapsed()
        output = await self._session.call_tool(name, arguments)
        result = ToolResult(
            call_id=call_id,
            name=name,
            output=output.text,
            error=output.error,
            at=began,
            duration=self.elapsed() - began,
        )
        await self._report(result)
        return result


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def outcome(task: asyncio.Task[Result]) -> Result:
    """Return the result of a task, which goes on if this waiter is cancelled. Raises CallRefused and its errors."""
    await asyncio.wait([task])
    if task.cancelled():
        raise CallRefused(409, "The attempt has ended.", "attempt_ended")
    return task.result()
