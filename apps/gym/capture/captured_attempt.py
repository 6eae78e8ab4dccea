"""One attempt of a captured agent: its model calls are captured, then the attempt is verified.

The agent calls the model through this object (see capture_server), and ends the attempt with a command. All calls run
in the context of the attempt, so that waits for a throttled model stop its clock.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from apps.gym.capture.agent_lease import AgentLease
from apps.gym.capture.capture_wires import CapturedRequest, choose_sampling
from apps.gym.capture.captured_calls import call_tool, model_call
from apps.gym.capture.captured_commands import CallRefused, Command, attempt_ended, outcome
from apps.gym.capture.captured_events import EventQueue
from apps.gym.capture.captured_replies import Call, Replies
from apps.gym.capture.mcp_answers import PendingCalls
from apps.gym.capture.previous_responses import PreviousResponses
from apps.gym.errors import AgentFailed, AgentLost, GymError
from apps.gym.loop.agent_loop import Harness, compose_prompt, resolve_sampling
from apps.gym.loop.attempt_driver import SessionDriver, verification_event
from apps.gym.outcomes import StopReason
from apps.gym.resources.protocol import ResourceServer, Session
from apps.gym.resources.verify_bodies import error_class
from apps.gym.rewards import Reward
from apps.gym.traces.call_records import NOTHING, Declared, Place
from apps.gym.traces.events import AgentEnd, FailedCall, ModelCall, Prompt, SessionOpened, ToolResult, TraceUnion
from apps.gym.traces.failed_calls import find_unanswered
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_tokens import TokenPacker
from apps.gym.traces.items import TaskRow, Tool
from apps.gym.traces.parents import ParentFinder
from apps.gym.wires.chat_deltas import Delta, OnDelta
from apps.gym.wires.dialect import SamplingRefused
from apps.gym.wires.protocol import Ask, Policy, Reply, reseed
from apps.gym.wires.tool_names import assemble_unprefixed_response, strip_tool_prefix

LEASE_SECONDS = 120.0
"""Seconds without a call or a command after which the agent counts as lost."""
LAST_CALLS_SECONDS = 30.0
"""Seconds that a finished attempt waits for calls in flight."""
LAST_WRITE_SECONDS = 5.0
"""Seconds that a finished attempt then waits for clients that are still receiving a reply."""
MAX_IN_FLIGHT = 64
"""Maximum calls of one attempt at a time."""
THROTTLED_SECONDS = 20.0
"""Seconds for which a call waits at a throttled endpoint, before the client gets the 429."""
MAX_FAILED, MAX_RECEIVED = 64, 10_000
"""Failed calls that the end of an attempt names, and characters of each that its client received."""
RETRY_SECONDS = 1.0
"""Seconds after which a client may repeat a throttled call if the endpoint does not say when."""

WaitUntilStored = Callable[[], Awaitable[None]]
"""Return once all events that were reported so far are in the database. Raises if they cannot be stored."""


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
        stored: WaitUntilStored,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        super().__init__(row=row, server=server, prompt=harness.prompt, seed=seed, elapsed=elapsed)
        self.harness = harness
        self.name = name
        self.trace: list[TraceUnion] = []
        self.tools: list[Tool] = []
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the agent may begin; has the error of an attempt that could not begin."""
        self.at_limit = asyncio.Event()
        """Set when the attempt reaches a limit of its agent."""
        self.calls = self.tokens = self._latest = 0
        self.responses = PreviousResponses()
        self._policy, self._wait_until_stored, self._lease_seconds = policy, stored, lease_seconds
        self.ending: asyncio.Task[None] | None = None
        """Stores the end of the attempt, once the agent has ended it."""
        self._packer = TokenPacker()
        self._events = EventQueue()
        self._running: set[asyncio.Task[Any]] = set()
        self._replies = Replies()
        self._pending = PendingCalls()
        self._limit: StopReason | None = None
        self._end: AgentEnd | None = None
        self._reward: Reward | None = None
        self._is_closed = False
        self._is_abandoned = False
        self._failed: deque[FailedCall] = deque(maxlen=MAX_FAILED)
        self._last_error: GymError | None = None
        self.refusal = ""
        """Why GymWeb refused the last invalid request of the agent."""
        self._session: Session | None = None

    # -- events -------------------------------------------------------------------------------------------------------

    async def events(self) -> AsyncGenerator[TraceUnion, None]:
        """Yield every event in order; see AttemptDriver."""
        self._context = contextvars.copy_context()
        try:
            session = await self._open_session()
            try:
                async for event in self._attempt(session):
                    self.trace.append(event)
                    yield event
            finally:
                await session.close()
        except BaseException as problem:
            if not self.opened.done():
                why = problem if isinstance(problem, GymError) else AgentLost(f"The attempt did not begin: {problem!r}")
                self.opened.set_exception(why)
                self.opened.exception()  # Mark as retrieved: the agent may no longer wait for it.
            raise
        finally:
            await self._close()

    async def _attempt(self, session: Session) -> AsyncIterator[TraceUnion]:
        self._session = session
        self._lease = AgentLease(self._lease_seconds, self._context)
        await self.list_tools()
        self.sampling = resolve_sampling(self.row, self.harness, self.seed)
        self._finder = ParentFinder(self.tools)
        yield SessionOpened(environment=self.server.name, tools=self.tools, seed=self.seed, duration=self.elapsed())
        yield Prompt(items=compose_prompt(self.row, self.harness), at=self.elapsed())
        self._lease.renew()
        self.opened.set_result(None)
        async for event in self._reported():
            yield event
        end = self._end
        if end is not None and end.command == "fail":
            failed = error_class(end.kind, AgentFailed)
            raise self._find_model_error() or failed(end.message or "The agent gave no reason.")
        # A limit of calls or tokens would have ended the attempt anyway.
        if self._limit in (None, "time_limit") and (problem := self._find_model_error() or self._find_refusal()):
            raise problem
        stop_reason = self._limit or "answered"
        if self._reward is not None:
            yield verification_event(self._reward, stop_reason, at=self.elapsed(), duration=0.0)
            return
        names = frozenset(str(tool.get("name", "")) for tool in self.tools)
        response = assemble_unprefixed_response(TraceGraph(self.trace).main, self.row, names, stop_reason)
        for verdict in await self._verify(session, response, stop_reason):
            yield verdict

    async def _reported(self) -> AsyncIterator[TraceUnion]:
        """Yield calls and tool results as they end, up to the end of the attempt."""
        while not (self._limit is not None and not self._running and not self._events):
            if self._is_abandoned:
                raise AgentLost("No agent took this attempt.").refused("rate_limit")
            reported = await self._events.get(self._lease.expires_at)
            if reported is None:
                self._check_lease()
                continue
            event, taken = reported
            yield event
            # The consumer has taken the event, so the database will get it.
            if not taken.done():
                taken.set_result(None)
            if isinstance(event, AgentEnd):
                return

    def _check_lease(self) -> None:
        if self._lease.expires_in:
            return
        if not self._running and self._end is None:
            raise self._find_model_error() or AgentLost(f"The agent was silent for {self._lease.seconds:g} s.")
        self._lease.renew()

    def _find_model_error(self) -> GymError | None:
        """Return the error of the model after which the agent got no reply and has no answer of a model."""
        return self._last_error if self._failed and find_unanswered(self.trace, self._failed) else None

    def _find_refusal(self) -> GymError | None:
        """Return an error if GymWeb refused all calls of the agent."""
        is_refused = self.refusal and not any(isinstance(event, ModelCall) for event in self.trace)
        return AgentFailed(f"GymWeb refused all model calls of the agent: {self.refusal}") if is_refused else None

    async def _report(self, event: TraceUnion) -> None:
        """Return once the event is stored. Raises CallRefused if the attempt ended before."""
        if not await self._events.put(event):
            raise attempt_ended()
        await self._wait_until_stored()

    async def _close(self) -> None:
        self._is_closed = True
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._events.close()
        if self._session is not None:
            await self._lease.close()

    # -- called by the agent ------------------------------------------------------------------------------------------

    def reach_limit(self, limit: StopReason) -> None:
        """Refuse further calls, and have the attempt verified after those in flight."""
        if not self._is_closed:
            self._limit = limit
            self._is_closed = True
            self.at_limit.set()
            self._events.wake()

    def extend(self) -> None:
        """Extend the lease at the agent's request. Raises CallRefused if the attempt has ended."""
        self._note_call()

    def abandon(self) -> None:
        """Return the rollout to the queue, because no agent learned of this attempt."""
        self._is_abandoned = self._is_closed = True
        self._events.wake()

    @property
    def session(self) -> Session:
        """Return the session at the environment, once the attempt is open."""
        assert self._session is not None
        return self._session

    @property
    def is_closed(self) -> bool:
        """Return True if the attempt accepts no more calls."""
        return self._is_closed

    @property
    def expires_in(self) -> float:
        """Return the seconds until the agent counts as lost."""
        return self._lease.expires_in

    def ask(
        self,
        request: CapturedRequest,
        *,
        wire: str,
        digest: bytes,
        is_repeated: bool,
        hint: str = "",
        declared: Declared = NOTHING,
        on_delta: OnDelta | None = None,
    ) -> Call:
        """Start a call of the model. Raises CallRefused.

        Call `mark_served` after each call. `digest` identifies the request. If a client says that it repeats a request,
        it gets the reply of the first one, without deltas. `hint` is the client's id of the conversation, for example
        the thread id that an agent sends. `declared` has the links that the client declares.
        """
        self._note_call()
        call = self._replies.find(digest) if is_repeated else None
        if call is None:
            self._check_limits()
            self.calls += 1
            request = msgspec.structs.replace(request, tools=self.harness.offer(request.tools))
            place = self._finder.place_request(
                request.items, request.tools, hint=hint, previous=request.previous, declared=declared
            )
            self._latest = place.call
            call = Call(place.call, self._start(self._call(request, place, wire, on_delta)))
            self._replies.keep(digest, call)
        self._replies.begin(call)
        return call

    def _check_limits(self) -> None:
        if (limit := self._reached_limit()) is not None:
            self.reach_limit(limit)
            raise CallRefused(
                400,
                f"The attempt has reached its limit ({limit}) and accepts no more calls. GymWeb is verifying it.",
                "limit_reached",
            )
        if len(self._running) >= MAX_IN_FLIGHT:
            raise CallRefused(429, f"At most {MAX_IN_FLIGHT} calls of an attempt run at a time.", "too_many_calls")

    async def list_tools(self) -> list[Tool]:
        """Return the current tools of the environment, or the task's own. Raises the errors of the environment."""
        if self._session is not None:
            offered = list(await self._session.list_tools())
            self.tools = self.harness.offer(self.row["responses_create_params"].get("tools") or offered)
        return self.tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Call a tool of the environment. Raises CallRefused and the errors of the environment."""
        self._note_call()
        known = frozenset(str(tool.get("name", "")) for tool in self.tools)
        call_id = self._pending.take(name, arguments, known, strip_tool_prefix)
        return await outcome(self._start(self._call_tool(strip_tool_prefix(name, known), call_id, arguments)))

    def mark_served(self, call: Call, *, is_whole: bool) -> None:
        """Note whether the client received the whole reply of a call."""
        self._replies.end(call, is_whole=is_whole)

    async def end(self, command: Command) -> AgentEnd:
        """End the attempt. Return once its end is stored.

        Waits at most LAST_CALLS_SECONDS for calls in flight. The first command counts: an equal one gets the
        same answer. Raises CallRefused for a different one.
        """
        if self._end is None:
            self._note_call()
            self._is_closed = True
            self._end, self._reward = command.event(), command.reward
            # Its own task, because the client may disconnect meanwhile.
            self.ending = asyncio.get_running_loop().create_task(
                self._store_end(self._end), context=self._context.copy()
            )
        if self._end.sha256 != command.sha256:
            raise CallRefused(409, f"The attempt already ended with another {self._end.command}.", "attempt_ended")
        assert self.ending is not None
        await outcome(self.ending)
        return self._end

    async def _store_end(self, end: AgentEnd) -> None:
        running = list(self._running)
        if running:
            _, late = await asyncio.wait(running, timeout=LAST_CALLS_SECONDS)
            for task in late:
                task.cancel()
        await self._replies.wait_until_written(LAST_WRITE_SECONDS)
        end.unserved = self._replies.unserved
        end.failed_calls = [*self._failed]
        end.at = self.elapsed()
        await self._report(end)

    def _note_call(self) -> None:
        if self._is_closed:
            raise attempt_ended()
        self._lease.note_call()

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
        self._lease.renew()
        self._events.wake()  # It may be the last call of an attempt at its limit.

    async def _call(self, request: CapturedRequest, place: Place, wire: str, on_delta: OnDelta | None) -> Reply:
        received: list[Delta] = []

        def pass_on(delta: Delta) -> None:
            assert on_delta
            received.append(delta)
            on_delta(delta)

        ask = Ask(
            items=request.items,
            tools=request.tools,
            session=self.name,
            on_delta=pass_on if on_delta else None,
            patience=THROTTLED_SECONDS,
            strict=self.harness.allows_strict,
        )
        try:
            await self._events.wait_for_room()
            began = self.elapsed()
            ask.sampling = choose_sampling(request, self.sampling, reseed(self.sampling, place.call + 1)["seed"])
            reply = await self._policy.ask(ask)
        except BaseException as problem:
            self.retried_failures += ask.retries > 0
            self._finder.abandon(place.call)
            self.calls -= 1
            # Sampling that GymWeb refuses is an error of the agent.
            if isinstance(problem, GymError) and not isinstance(problem, SamplingRefused):
                self._note_failure(place.call, problem, received)
            raise
        self.tokens += reply.usage.get("input_tokens", 0) + reply.usage.get("output_tokens", 0)
        place = self._finder.complete(place.call, reply.items, reply.tokens)
        call = model_call(
            request,
            place,
            reply,
            wire=wire,
            sampling=ask.sampling,
            tokens=self._packer.pack(place.call, place.parent, reply.tokens),
        )
        call.at, call.duration = began, self.elapsed() - began
        self.responses.add(call, request.body)
        self._pending.add(reply.items)
        await self._report(call)
        # Replies are kept for repeated requests. Clients do not get the token IDs.
        return msgspec.structs.replace(reply, tokens=None)

    def _note_failure(self, call: int, problem: GymError, received: list[Delta]) -> None:
        parts = ["".join(one.text for one in part) for _, part in groupby(received, attrgetter("kind", "number"))]
        failed = FailedCall(call=call, latest=self._latest, kind=problem.kind, message=str(problem))
        failed.received = "\n".join(parts)[:MAX_RECEIVED]
        self._failed.append(failed)
        self._last_error = problem
        if problem.refused_by == "rate_limit":
            self._lease.stop_clock_for_retry(RETRY_SECONDS if problem.retry_after is None else problem.retry_after)

    async def _call_tool(self, name: str, call_id: str, arguments: dict[str, Any]) -> ToolResult:
        assert self._session is not None
        result = await call_tool(self._session, name, arguments, call_id=call_id, elapsed=self.elapsed)
        await self._report(result)
        return result
