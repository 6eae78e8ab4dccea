"""The built-in agent loop: call the model and run its tool calls until a stop reason, then verify.

It yields events and stores nothing. It uses no database, clock or socket itself: `elapsed` returns the time, `policy`
and `server` make the calls.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

import msgspec

from apps.gym.errors import EnvironmentFault
from apps.gym.loop.attempt_driver import SessionDriver
from apps.gym.outcomes import StopReason
from apps.gym.resources.protocol import ResourceServer, Session, SteppedSession, failed_call
from apps.gym.tasks.prompt_templates import PromptTemplate
from apps.gym.traces.chat_turns import SentMessages
from apps.gym.traces.events import (
    EnvironmentTurn,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
)
from apps.gym.traces.items import (
    Item,
    TaskRow,
    Tool,
    function_calls,
    input_items,
    item_type,
    message,
    text_of,
)
from apps.gym.traces.responses import ResponseParts
from apps.gym.traces.tokens import pack_tokens
from apps.gym.wires.protocol import Ask, Policy, Reply, reseed
from apps.gym.wires.tool_names import assemble_unprefixed_response, strip_tool_prefix

ENDING_FINISH_REASONS: dict[str, StopReason] = {
    "max_output_tokens": "max_output_tokens",
    "context_length": "context_length",
    "content_filter": "content_filter",
}
"""Stop reasons by finish reason. Tool calls in such a reply may be incomplete, so they are not run."""

SAMPLING_KEYS = (
    "temperature",
    "top_p",
    "max_output_tokens",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "top_logprobs",
    "metadata",
)
"""Sampling parameters that a task may set in `responses_create_params`. They override `harness.sampling`."""


class Harness(msgspec.Struct, frozen=True, kw_only=True):
    """The agent harness: prompt, few-shot examples, limits.

    `time_limit` is in seconds, `token_limit` counts input and output tokens of all calls. Both are checked between
    steps. With `strict_tools` "never", tools are sent without `strict`, so that servers do not use a grammar for them.
    They may still use one for a forced `tool_choice`.

    An empty reply has neither text nor tool calls. The model is then called again. A second empty reply without a tool
    call in between ends the attempt. With `retry_empty_replies`, empty replies never end it, as in NeMo Gym before
    0.7.0. Its agents now end at the first one.
    """

    system_prompt: str = ""
    prompt: PromptTemplate = PromptTemplate()
    examples: list[Item] = []
    max_steps: int = 10
    time_limit: float = 600.0
    token_limit: int = 1_000_000
    parallel_tool_calls: bool = True
    strict_tools: Literal["declared", "never"] = "declared"
    retry_empty_replies: bool = False
    sampling: dict[str, Any] = {}

    @property
    def allows_strict(self) -> bool:
        return self.strict_tools == "declared"

    def offer(self, tools: list[Tool]) -> list[Tool]:
        """Return the tools to send to the model: without `strict` if tools must never be strict."""
        if self.allows_strict:
            return tools
        return [{key: value for key, value in tool.items() if key != "strict"} for tool in tools]


def compose_prompt(row: TaskRow, harness: Harness) -> list[Item]:
    """Return the prompt: system prompt, the row's own instructions, few-shot examples, then the row's input."""
    opening = [message("system", harness.system_prompt)] if harness.system_prompt else []
    instructions = row["responses_create_params"].get("instructions")
    if instructions:
        opening.append(message("system", instructions))
    return [*opening, *harness.examples, *input_items(row)]


def resolve_sampling(row: TaskRow, harness: Harness, seed: int) -> dict[str, Any]:
    """Return the sampling parameters of the harness, overridden by the task's own.

    `harness.sampling` already combines the settings of model, agent and collection. `seed` replaces any other
    seed: it differs between rollouts, because a shared seed would make repeats identical.
    """
    params = row["responses_create_params"]
    own = {key: params[key] for key in SAMPLING_KEYS if key in params and params[key] is not None}
    return {**harness.sampling, **own, "seed": seed}


class Attempt(SessionDriver):
    """One attempt at one task by the built-in agent. Iterate `events()` once."""

    def __init__(
        self,
        *,
        row: TaskRow,
        server: ResourceServer,
        policy: Policy,
        harness: Harness,
        seed: int,
        elapsed: Callable[[], float],
        name: str = "",
    ) -> None:
        """Prepare an attempt. `elapsed`: see SessionDriver. `name` identifies the rollout, see Ask.session."""
        super().__init__(row=row, server=server, prompt=harness.prompt, seed=seed, elapsed=elapsed)
        self.policy = policy
        self.harness = harness
        self.name = name
        self.conversation: list[Item] = []
        self.tools: list[Tool] = []
        self._listed: list[Tool] = []  # the environment's tools
        self._tool_names: list[str] = []
        self.sampling = resolve_sampling(row, harness, seed)
        self._parts = ResponseParts()
        self._sent = SentMessages()
        self._ids = b""  # packed ids of the last call with tokens
        self._has_responded = False  # the environment has answered a reply
        self._allows_strict = harness.allows_strict
        self._ending: StopReason | None = None  # set when the environment ends the attempt

    async def events(self) -> AsyncGenerator[TraceUnion, None]:
        """Yield every event in order; see AttemptDriver."""
        session = await self._open_session()
        ask: Ask | None = None
        try:
            self._offer(await session.list_tools())
            stepped = session if isinstance(session, SteppedSession) else None
            opened = self.elapsed()
            yield self._note(
                SessionOpened(environment=self.server.name, tools=self.tools, seed=self.seed, duration=opened)
            )
            yield self._note(Prompt(items=self._initial_items(session), at=self.elapsed()))
            stop_reason: StopReason | None = None
            steps = empty_replies = tokens = 0
            while (stop_reason := stop_reason or self._reached_limit(steps, tokens)) is None:
                if steps and (listed := await session.list_tools()) != self._listed:
                    self._offer(listed)
                # Each empty reply since the last tool call changes the seed, to get another reply.
                began, sampling = self.elapsed(), reseed(self.sampling, empty_replies + 1)
                ask = self._next_ask(sampling)
                reply = self._model_call(await self.policy.ask(ask), began=began, sampling=sampling)
                ask = None
                yield self._note(reply)
                steps += 1
                tokens += reply.usage.get("input_tokens", 0) + reply.usage.get("output_tokens", 0)
                calls = function_calls(reply.items)
                if reply.finish_reason in ENDING_FINISH_REASONS:
                    stop_reason = ENDING_FINISH_REASONS[reply.finish_reason]
                elif stepped:
                    for event in await self._step(stepped, reply):
                        yield self._note(event)
                    stop_reason = self._ending
                elif calls:
                    empty_replies = 0
                    for result in await self._call_tools(session, calls):
                        yield self._note(result)
                elif not any(text_of(item).strip() for item in reply.items if item_type(item) == "message"):
                    empty_replies += 1
                    stop_reason = "empty_reply" if empty_replies > 1 and not self.harness.retry_empty_replies else None
                else:
                    for event in await self._respond(session, reply):
                        yield self._note(event)
                    stop_reason = self._ending
                del reply, calls  # thousands of attempts wait for replies at the same time
            response = assemble_unprefixed_response(self._parts, self.row, self._tool_names, stop_reason)
            for verdict in await self._verify(session, response, stop_reason):
                yield self._note(verdict)
        finally:
            self.retried_failures = int(ask is not None and ask.retries > 0)
            await session.close()

    def _note(self, event: TraceUnion) -> TraceUnion:
        """Add an event to the conversation and the response, and return it."""
        self.conversation += self._parts.add(event)
        return event

    def _offer(self, listed: list[Tool]) -> None:
        """Offer the tools that the environment lists to the next model call. A task's own tools never change."""
        self._listed = list(listed)
        tools = self.harness.offer(self.row["responses_create_params"].get("tools") or self._listed)
        if tools != self.tools:
            self.tools = tools
            # A reply or a verifier may name a tool that is no longer offered.
            self._tool_names += [str(tool.get("name", "")) for tool in tools]

    def _initial_items(self, session: Session) -> list[Item]:
        """Return the prompt and the environment's first messages.

        Raises EnvironmentFault if neither the task nor the environment has a message.
        """
        if not input_items(self.row) and not session.opening:
            problem = f"The task has no prompt, and {self.server.name} sends none. Add a prompt to the task."
            raise EnvironmentFault(problem).permanent()
        return [*compose_prompt(self.row, self.harness), *session.opening]

    def _reached_limit(self, steps: int, tokens: int) -> StopReason | None:
        if steps >= self.harness.max_steps:
            return "max_steps"
        if self.elapsed() > self.harness.time_limit:
            return "time_limit"
        return "token_limit" if tokens >= self.harness.token_limit else None

    def _next_ask(self, sampling: dict[str, Any]) -> Ask:
        return Ask(
            items=self.conversation,
            tools=self.tools,
            sampling=sampling,
            session=self.name,
            strict=self._allows_strict,
            sent=self._sent,
        )

    def _model_call(self, reply: Reply, *, began: float, sampling: dict[str, Any]) -> ModelCall:
        return ModelCall(
            **reply.call_fields(),
            seen=len(self.conversation),
            sampling=sampling if reply.sampling is None else reply.sampling,
            tokens=self._pack_tokens(reply),
            tools_in=None if self.tools is self._parts.tools else self.tools,
            at=began,
            duration=self.elapsed() - began,
        )

    def _pack_tokens(self, reply: Reply) -> bytes | None:
        if reply.tokens is None:
            return None
        before, self._ids = self._ids, reply.tokens.ids
        return pack_tokens(reply.tokens, before=before)

    async def _respond(self, session: Session, reply: ModelCall) -> list[TraceUnion]:
        """Pass a reply to the environment. Return the model calls of a simulated user, then the environment's turn."""
        began = self._asked_at = self.elapsed()
        observations = await session.respond(reply.items)
        calls = self.take_judge_calls()
        if observations is None:
            self._ending = "environment_done" if calls or self._has_responded else "answered"
            return [*calls]
        self._has_responded = True
        duration = self.elapsed() - began
        return [*calls, EnvironmentTurn(items=observations, by_user=bool(calls), at=began, duration=duration)]

    async def _step(self, session: SteppedSession, reply: ModelCall) -> list[TraceUnion]:
        """Pass a reply to the environment as one step. Return the outputs of its calls, then the environment's turn."""
        began = self.elapsed()
        parts = ResponseParts(tools=self.tools)
        parts.add(reply)
        step = await session.step(assemble_unprefixed_response(parts, self.row, self._tool_names))
        duration = self.elapsed() - began
        events: list[TraceUnion] = []
        calls = function_calls(reply.items)
        for call, result in zip(calls, step.outputs_of(calls), strict=True):
            if result:
                events.append(
                    ToolResult(
                        call_id=str(call.get("call_id", "")),
                        name=str(call.get("name", "")),
                        output=result.output,
                        error=result.error,
                        at=began,
                        duration=duration,
                    )
                )
        if step.items:
            events.append(EnvironmentTurn(items=step.items, at=began, duration=duration))
        self._ending = "environment_done" if step.done else None
        return events

    async def _call_tools(self, session: Session, calls: list[Item]) -> list[ToolResult]:
        """Run the tool calls and return their results in the same order."""
        if len(calls) == 1 or not self.harness.parallel_tool_calls:
            return [await self._call_tool(session, call) for call in calls]
        running = [asyncio.ensure_future(self._call_tool(session, call)) for call in calls]
        try:
            return await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()

    async def _call_tool(self, session: Session, call: Item) -> ToolResult:
        began = self.elapsed()
        name, call_id = str(call.get("name", "")), str(call.get("call_id", ""))
        try:
            arguments = session.read_arguments(call.get("arguments"))
        except ValueError as problem:
            result = failed_call(f"Invalid tool call arguments: {problem}", "invalid_arguments")
        else:
            result = await session.call_tool(strip_tool_prefix(name, self._tool_names), arguments)
        return ToolResult(
            call_id=call_id,
            name=name,
            output=result.output,
            error=result.error,
            at=began,
            duration=self.elapsed() - began,
        )
