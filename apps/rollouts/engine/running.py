"""Run one claimed rollout, and report its events and exactly one end."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from apps.gym.boxes.command_spec import CommandSpec
from apps.gym.calls.time_limits import TimeLimit, stopped_clocks
from apps.gym.errors import EnvironmentFault, GymError, TimedOut
from apps.gym.loop.agent_loop import Attempt, Harness
from apps.gym.loop.attempt_driver import AttemptDriver
from apps.gym.metrics.majority_at_k import comparable_answer
from apps.gym.redaction.shortening import cut
from apps.gym.resources.protocol import ResourceServer
from apps.gym.setup_notices import SetupSigns
from apps.gym.traces.events import (
    AgentEnd,
    ErrorRaised,
    JudgeCall,
    ModelCall,
    Prompt,
    SessionOpened,
    ToolResult,
    TraceUnion,
    Verification,
)
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import Item, TaskRow, TokenUsage, function_calls, item_type, message
from apps.gym.traces.tokens import TokensUnreadable, read_shape
from apps.gym.wires.pricing import FREE, Prices
from apps.gym.wires.protocol import Policy, lacks_usage
from apps.gym.wires.tool_names import strip_tool_prefix
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.recording import End
from apps.rollouts.models import Rollout

logger = logging.getLogger(__name__)

MAX_MESSAGE = 2_000
"""Maximum characters of an error message on the rollout. The trace has the full message."""
MAX_COUNT = 2**31 - 1  # maximum of an integer column
MAX_TOOLS = 64
"""Maximum number of tools whose calls are counted separately per rollout."""
MAX_TOOL_NAME = 100  # characters
OTHER_TOOLS = "(others)"


class Setting(msgspec.Struct, kw_only=True):
    """The objects that all rollouts of a collection share: policy client, resource server, harness and limits.

    `rollout_timeout` is in seconds. `command` is set only for command agents. `agent_server` is set only for agent
    servers, to their URL and whether they verify. `server` calls the judge model; only id and prices are here.
    """

    policy_model_id: int
    environment_id: int
    policy: Policy
    server: ResourceServer
    harness: Harness
    rollout_timeout: float
    model_name: str = ""
    command: CommandSpec | None = None
    agent_server: tuple[str, str] | None = None
    max_attempts: int = 1
    prices: Prices = FREE
    judge_model_id: int | None = None
    judge_prices: Prices = FREE
    ends: Counter[int] = msgspec.field(default_factory=Counter)


class RolloutStats(msgspec.Struct):
    """Statistics of one attempt, added up from its events.

    Tool calls are those that GymWeb ran and, of captured agents, the calls in replies. Only calls that GymWeb ran have
    seconds.
    `_called` has the tools of the calls without a result, by call id.
    """

    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    judge_calls: int = 0
    judge_input_tokens: int = 0
    judge_output_tokens: int = 0
    judge_cached_tokens: int = 0
    judge_cache_write_tokens: int = 0
    calls_without_usage: int = 0
    retried_calls: int = 0
    sampled_tokens: int = 0
    trainable_tokens: int = 0
    model_time: float = 0.0
    tool_time: float = 0.0
    model_version: str = ""
    ambiguous_path: bool = False
    verification: Verification | None = None
    tools: dict[str, tuple[int, int, float]] = {}
    last_reply: list[Item] = []
    signs: SetupSigns = msgspec.field(default_factory=SetupSigns)
    _offered: list[str] = []
    _called: dict[str, list[str]] = {}
    _captured: list[TraceUnion] = []

    def add(self, event: TraceUnion) -> None:
        match event:
            case SessionOpened():
                self._offered = self.signs.tools = [str(tool.get("name", "")) for tool in event.tools]
            case Prompt():
                self.signs.prompts.append(event.items)
            case ModelCall():
                self.turns += 1
                self.model_time += event.duration
                self.last_reply = event.items
                self.signs.add(event)
                if event.call:
                    self._captured.append(event)
                    self._count_calls(event)
                self.model_version = self.model_version or event.version
                self.input_tokens += event.usage.get("input_tokens", 0)
                self.output_tokens += event.usage.get("output_tokens", 0)
                self.cached_tokens += event.usage.get("cached_tokens", 0)
                self.cache_write_tokens += event.usage.get("cache_write_tokens", 0)
                self.calls_without_usage += lacks_usage(event)
                self.retried_calls += event.retries > 0
                if event.tokens is not None:
                    self._count_tokens(event, event.tokens)
            case ToolResult():
                self.tool_time += event.duration
                called = self._take_call(event.call_id)
                name = event.name if called is None else called
                self._count_tool(name, calls=called is None, errors=bool(event.error), seconds=event.duration)
            case Verification():
                self.verification = event
            case AgentEnd():
                self._captured.append(event)
            case JudgeCall():
                self.judge_calls += 1
                self.judge_input_tokens += event.usage.get("input_tokens", 0)
                self.judge_output_tokens += event.usage.get("output_tokens", 0)
                self.judge_cached_tokens += event.usage.get("cached_tokens", 0)
                self.judge_cache_write_tokens += event.usage.get("cache_write_tokens", 0)
                self.calls_without_usage += lacks_usage(event)
                self.retried_calls += event.retries > 0

    def _count_tokens(self, event: ModelCall, tokens: bytes) -> None:
        sampled = _count_sampled(tokens)
        self.sampled_tokens += sampled
        self.trainable_tokens += 0 if event.grammar else sampled

    def finish(self) -> None:
        """Choose the main path of a captured attempt, and count only tokens of replies that the client received."""
        if not self._captured:
            return
        captured, self._captured = self._captured, []
        graph = TraceGraph(captured)
        ends = [event.answer for event in captured if isinstance(event, AgentEnd) and event.answer]
        if graph.is_line:
            self.last_reply = [message("assistant", ends[-1])] if ends else self.last_reply
            return
        self.ambiguous_path = graph.main_path.ambiguous
        main = graph.calls.get(graph.main_leaf)
        self.last_reply = [message("assistant", ends[-1])] if ends else (main.items if main else [])
        self.sampled_tokens = self.trainable_tokens = 0
        for call in graph.effective_calls:
            if (tokens := graph.calls[call].tokens) is not None:
                self._count_tokens(graph.calls[call], tokens)

    def _count_calls(self, event: ModelCall) -> None:
        """Count the calls in a reply, and the failed results that a captured request contains."""
        for item in event.items_in:
            if (
                item_type(item) == "function_call_output"
                and (name := self._take_call(str(item.get("call_id", "")))) is not None
            ):
                self._count_tool(name, errors=item.get("status") == "incomplete")
        for call in function_calls(event.items):
            name = str(call.get("name", ""))
            if event.call:
                # GymWeb stores the results of captured calls under the names of the environment.
                name = strip_tool_prefix(name, self._offered)
            self._count_tool(name, calls=1)
            self._called.setdefault(str(call.get("call_id", "")), []).append(name)

    def _take_call(self, call_id: str) -> str | None:
        """Return the tool of a call that has no result yet, or None. The call then has a result."""
        names = self._called.get(call_id)
        return names.pop(0) if names else None

    def _count_tool(self, name: str, *, calls: int = 0, errors: int = 0, seconds: float = 0.0) -> None:
        self.tool_calls += calls
        self.tool_errors += errors
        name = cut(_storable(name), MAX_TOOL_NAME)
        if name not in self.tools and len(self.tools) == MAX_TOOLS:
            # Models may invent any number of tool names.
            name = OTHER_TOOLS
        before = self.tools.get(name, (0, 0, 0.0))
        self.tools[name] = (before[0] + calls, before[1] + errors, before[2] + seconds)

    def counts(self) -> dict[str, Any]:
        """Return the columns of a rollout with the numbers of turns, tool calls and captured tokens."""
        self.finish()
        return {
            "turns": self.turns,
            "tool_calls": self.tool_calls,
            "tool_errors": self.tool_errors,
            "sampled_tokens": self.sampled_tokens,
            "trainable_tokens": self.trainable_tokens,
        }

    def outcome(self) -> dict[str, Any]:
        """Return the columns of a rollout that follow from its verification; none without a verification."""
        self.finish()
        verified = self.verification
        if verified is None:
            return {}
        masked = verified.masked
        return {
            "reward": None if masked or verified.reward is None else float(verified.reward),
            "masked": masked,
            "ambiguous_path": self.ambiguous_path,
            "notices": self.signs.names(),
            "components": {_storable(name): value for name, value in verified.components.items()},
            "stop_reason": verified.stop_reason,
            "answer": _storable(comparable_answer(self.last_reply, verified.details)),
        }

    def cost(self, setting: "Setting | None") -> float:
        """Return the cost in USD at current prices, including judge calls."""
        if setting is None:
            return 0.0
        own: TokenUsage = {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "cache_write_tokens": self.cache_write_tokens,
        }
        cost = setting.prices.cost(own)
        if not self.judge_calls:
            return cost
        judge: TokenUsage = {
            "input_tokens": self.judge_input_tokens,
            "output_tokens": self.judge_output_tokens,
            "cached_tokens": self.judge_cached_tokens,
            "cache_write_tokens": self.judge_cache_write_tokens,
        }
        return cost + setting.judge_prices.cost(judge)


class Listener(Protocol):
    """Callbacks of a running rollout."""

    def add_event(self, claim: Claim, event: TraceUnion) -> None:
        """Queue an event to be stored."""

    def has_space(self) -> bool:
        """Return False while events waiting to be stored use too much memory."""

    async def wait_for_space(self) -> None:
        """Wait until `has_space`."""

    def count_failure(self, claim: Claim, setting: Setting, failure: GymError) -> int | None:
        """Return None if the rollout has failed for good. Else it is retried: return the failures to count, 0 or 1."""


class _Elapsed:
    """Returns the seconds since it was created, without those for which the time limit was suspended."""

    __slots__ = ("_began", "_limit")

    def __init__(self, limit: TimeLimit) -> None:
        # Not the clock of the event loop: in uvloop it has a resolution of 1 ms.
        self._began, self._limit = time.perf_counter(), limit

    def __call__(self) -> float:
        return time.perf_counter() - self._began - (self._limit.waited if self._limit.was_stopped else 0.0)


DriverFactory = Callable[[Callable[[], float]], AttemptDriver]
"""Creates the driver of an attempt. The argument returns the elapsed seconds (see SessionDriver)."""


async def run_rollout(
    *, claim: Claim, row: TaskRow, setting: Setting, listener: Listener, make_driver: DriverFactory | None = None
) -> End:
    """Run an attempt, report its events to the listener and return its end.

    An error of the attempt is not raised, but becomes part of its end. CancelledError is raised. Without `make_driver`,
    the built-in agent runs.
    """
    stats, limit = RolloutStats(signs=SetupSigns(ends=setting.ends)), TimeLimit(setting.rollout_timeout)
    elapsed = _Elapsed(limit)

    attempt: AttemptDriver
    if make_driver is None:
        attempt = Attempt(
            row=row,
            server=setting.server,
            policy=setting.policy,
            harness=setting.harness,
            seed=claim.seed,
            elapsed=elapsed,
            name=str(claim.rollout_id),
        )
    else:
        attempt = make_driver(elapsed)
    failure: GymError
    try:
        with limit:
            events = attempt.events()
            try:
                async for event in events:
                    stats.add(event)
                    listener.add_event(claim, event)
                    if not listener.has_space():
                        # Waiting for the database does not count towards the time limit.
                        with stopped_clocks():
                            await listener.wait_for_space()
            finally:
                # Explicitly: asyncio would close the generator too late if the event loop ends.
                await events.aclose()
                stats.retried_calls += attempt.retried_failures
        return _end(claim, stats, setting, elapsed())
    except GymError as problem:
        failure = problem
    except TimeoutError:
        failure = TimedOut(f"The rollout reached its limit of {setting.rollout_timeout:g} s. Increase rollout_timeout.")
    except Exception as bug:
        # A bug in GymWeb or in user code must only fail this rollout, never the worker.
        logger.exception("rollout %s failed unexpectedly", claim.rollout_id)
        failure = EnvironmentFault(f"Unexpected error; see the worker log: {type(bug).__name__}: {bug}")
    message = str(failure) or type(failure).__name__
    # The traceback and this frame reference each other and would keep the attempt in memory until the next full
    # garbage collection.
    failure.__traceback__ = None
    if stats.verification is not None:
        # The reward is verified; only closing the session failed.
        logger.warning("rollout %s keeps its reward, verified before an error: %s", claim.rollout_id, message)
        return _end(claim, stats, setting, elapsed())
    for call in attempt.take_judge_calls():
        stats.add(call)
        listener.add_event(claim, call)
    listener.add_event(claim, ErrorRaised(kind=failure.kind, message=message, at=elapsed()))
    counted_failures = listener.count_failure(claim, setting, failure)
    if counted_failures is not None:
        return _retry_end(claim, stats, setting, counted_failures, deferred=failure.refused_by is not None)
    return _end(claim, stats, setting, elapsed(), error_kind=failure.kind, error_message=message)


def _end(claim: Claim, stats: RolloutStats, setting: Setting | None, duration: float, **failure: str) -> End:
    """Return the end of an attempt that is not retried. A failed one needs `error_kind` and `error_message`."""
    verified = stats.verification
    outcome: dict[str, Any]
    if failure or verified is None:
        message = cut(_storable(failure["error_message"]), MAX_MESSAGE)
        outcome = {
            "status": Rollout.Status.FAILED.value,
            "error_kind": failure["error_kind"],
            "error_message": message,
            "failed": 1,
        }
    else:
        outcome = {
            "status": Rollout.Status.COMPLETED.value,
            "verify_time": verified.duration,
            **stats.outcome(),
        }
    return End(
        **stats.counts(),
        duration=duration,
        model_time=stats.model_time,
        tool_time=stats.tool_time,
        tools=stats.tools,
        **outcome,
        **_usage(claim, stats, setting),
    )


def _usage(claim: Claim, stats: RolloutStats, setting: Setting | None) -> dict[str, Any]:
    """Return the fields that ends with and without a retry share: the attempt, and what its calls used."""
    return {
        "id": claim.rollout_id,
        "lease": claim.lease,
        "collection": claim.collection_id,
        "attempt": claim.attempt,
        "input_tokens": _count(stats.input_tokens),
        "output_tokens": _count(stats.output_tokens),
        "judge_calls": _count(stats.judge_calls),
        "judge_tokens": _count(stats.judge_input_tokens + stats.judge_output_tokens),
        "calls_without_usage": _count(stats.calls_without_usage),
        "retried_calls": _count(stats.retried_calls),
        "cost": stats.cost(setting),
        "model_version": stats.model_version,
    }


def _retry_end(claim: Claim, stats: RolloutStats, setting: Setting, counted_failures: int, *, deferred: bool) -> End:
    """Return the end of an attempt whose rollout will be retried. Its usage still counts."""
    return End(
        status=Rollout.Status.QUEUED.value,
        failed=counted_failures,
        deferred=deferred,
        **_usage(claim, stats, setting),
    )


def _count_sampled(tokens: bytes) -> int:
    """Return the number of sampled tokens of a call. Trainers refuse unreadable ones, so these count as none."""
    try:
        return read_shape(tokens).generated
    except TokensUnreadable:
        return 0


def _count(number: int) -> int:
    """Clamp a count to the range of the column: endpoints may report any number."""
    return number if 0 <= number <= MAX_COUNT else max(0, min(number, MAX_COUNT))


def _storable(text: str) -> str:
    """Return text without NUL and lone surrogates, which databases reject."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "�").encode(errors="replace").decode()


def cancelled_end(claim: Claim) -> End:
    return End(
        id=claim.rollout_id,
        lease=claim.lease,
        collection=claim.collection_id,
        attempt=claim.attempt,
        status=Rollout.Status.CANCELLED.value,
    )


def broken_end(claim: Claim, problem: Exception) -> End:
    """Return the end of a rollout after an unexpected error in `run_rollout`."""
    message = f"Unexpected error; see the worker log: {type(problem).__name__}: {problem}"
    return _end(claim, RolloutStats(), None, 0.0, error_kind="environment_error", error_message=message)
