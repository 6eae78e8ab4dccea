"""Spans of claims and rollouts. Only used while spans are sent, so the engine does no work for them otherwise."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from apps.accounts.telemetry.spans import SILENT, current_tracer, fail, named
from apps.gym.errors import GymError
from apps.gym.traces.events import JudgeCall, ModelCall, ToolResult, TraceUnion, Verification
from apps.gym.traces.items import TokenUsage
from apps.rollouts.engine.claimed_work import Fetched, fetch_work
from apps.rollouts.engine.claiming import Claim
from apps.rollouts.engine.recording import End
from apps.rollouts.engine.running import Listener, Setting, run_rollout

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_USAGE = ("input_tokens", "output_tokens")


class EngineCalls(NamedTuple):
    """The functions with which a worker claims and runs rollouts."""

    fetch_work: Callable[..., Fetched]
    run_rollout: Callable[..., Any]


def engine_calls() -> EngineCalls:
    """Return the functions themselves, or versions that record spans if spans are sent."""
    tracer = current_tracer()
    if tracer is None:
        return EngineCalls(fetch_work, run_rollout)
    traced = _TracedEngine(tracer)
    return EngineCalls(traced.fetch_work, traced.run_rollout)


class _TracedEngine:
    def __init__(self, tracer: "Tracer") -> None:
        self._tracer = tracer

    def fetch_work(self, **given: Any) -> Fetched:
        """Claim rollouts. Claims that find none have no span: a worker makes one a second."""
        began = time.time_ns()
        fetched = fetch_work(**given)
        if fetched.work:
            attributes = named({"worker.id": given["lease"], "rollouts": len(fetched.work)})
            self._tracer.start_span("claim", start_time=began, attributes=attributes).end()
        return fetched

    async def run_rollout(self, *, claim: Claim, setting: Setting, listener: Listener, **given: Any) -> End:
        attributes = _of_claim(claim, setting)
        with self._tracer.start_as_current_span("rollout", attributes=attributes, **SILENT) as span:
            traced = _SpanListener(listener, self._tracer)
            end = await run_rollout(claim=claim, setting=setting, listener=traced, **given)
            span.set_attributes(_of_end(end))
            if end.error_kind:
                fail(span, end.error_kind)
        return end


def _of_claim(claim: Claim, setting: Setting) -> dict[str, Any]:
    return named(
        {
            "worker.id": claim.lease,
            "rollout.id": claim.rollout_id,
            "collection.id": claim.collection_id,
            "task.id": claim.task_id,
            "attempt": claim.attempt,
            "model": setting.model_name,
            "environment": setting.server.name,
        }
    )


def _of_end(end: End) -> dict[str, Any]:
    return named(
        {
            "status": end.status,
            "stop_reason": end.stop_reason,
            "reward": end.reward,
            "turns": end.turns,
            "tool_calls": end.tool_calls,
            "input_tokens": end.input_tokens,
            "output_tokens": end.output_tokens,
        }
    )


class _SpanListener:
    """Passes all callbacks on, and records a span for each event that took time. Spans have no content of traces."""

    def __init__(self, listener: Listener, tracer: "Tracer") -> None:
        self._listener, self._tracer = listener, tracer
        self.has_space, self.wait_for_space = listener.has_space, listener.wait_for_space

    def add_event(self, claim: Claim, event: TraceUnion) -> None:
        self._listener.add_event(claim, event)
        match event:
            case ModelCall():
                self._record("model_call", event.duration, _of_call(event.model, event.usage, event.retries))
            case ToolResult():
                attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": event.name}
                self._record("tool_call", event.duration, attributes, problem=event.error)
            case JudgeCall():
                self._record("judge_call", event.duration, _of_call(event.model, event.usage, event.retries))
            case Verification():
                self._record("verification", event.duration, {})

    def count_failure(self, claim: Claim, setting: Setting, failure: GymError) -> int | None:
        return self._listener.count_failure(claim, setting, failure)

    def _record(self, name: str, seconds: float, attributes: dict[str, Any], *, problem: str = "") -> None:
        """Record a span that ends now. The events of a trace have no time of day."""
        now = time.time_ns()
        span = self._tracer.start_span(name, start_time=now - round(seconds * 1e9), attributes=attributes)
        if problem:
            fail(span, problem)
        span.end(end_time=now)


def _of_call(model: str, usage: TokenUsage, retries: int) -> dict[str, Any]:
    tokens = {f"gen_ai.usage.{name}": usage[name] for name in _USAGE if name in usage}  # type: ignore[literal-required]
    return {"gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gymweb.retries": retries, **tokens}
