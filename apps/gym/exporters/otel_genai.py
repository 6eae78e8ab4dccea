"""One trace of OpenTelemetry GenAI spans for each rollout, for Langfuse, Phoenix, MLflow and other OTLP receivers.

The root span `invoke_agent` has a child for each model call (`chat`), tool call (`execute_tool`) and verification. A
subagent has its own `invoke_agent` span below the tool call that started it. The reward and its components are
`gen_ai.evaluation.result` events of the root span. Each row is the body of one OTLP/HTTP request, as JSON.

Conventions: https://github.com/open-telemetry/semantic-conventions-genai, all at status Development.
"""

from collections.abc import Iterator
from typing import Any

from apps.gym.exporters.genai_messages import as_messages, as_text, reply_message
from apps.gym.exporters.genai_tools import ToolRun, find_tool_runs
from apps.gym.exporters.otlp_json import CLIENT, TraceWriter, encode_attributes
from apps.gym.exporters.protocol import Attempt, Format, Options, Row
from apps.gym.traces.events import JudgeCall, ModelCall, Verification
from apps.gym.traces.graph import TraceGraph, is_captured
from apps.gym.traces.items import Item, TokenUsage
from apps.gym.traces.responses import with_unique_ids

SCOPE = "gymweb"
ROOT = "agent 0"
VERIFICATION = "verification"
_PROVIDERS = {"anthropic": "anthropic", "azure": "azure.ai.openai", "vllm": "vllm"}
"""`gen_ai.provider.name` by provider of the policy model. It is required, so others get that of their API: openai."""
_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "max_output_tokens": "max_tokens",
}
_USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cache_read.input_tokens",
    "cache_write_tokens": "cache_creation.input_tokens",
    "reasoning_tokens": "reasoning.output_tokens",
}


def genai_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    """Yield the trace of a rollout."""
    yield _GenaiTrace(attempt, options).write()


class _GenaiTrace:
    def __init__(self, attempt: Attempt, options: Options) -> None:
        self._attempt = attempt
        self._messages = options.messages
        self._graph = TraceGraph(attempt.events if is_captured(attempt.events) else with_unique_ids(attempt.events))
        self._seconds = max((event.at + event.duration for event in attempt.events), default=0.0)
        columns = attempt.columns
        identity = [columns.get(name) for name in ("rollout_id", "collection_id", "dataset", "task_index")]
        self._out = TraceWriter([*identity, attempt.stored_at], began=attempt.stored_at - self._seconds)
        self._conversation = f"rollout-{columns.get('rollout_id', 0)}"
        self._runs = find_tool_runs(self._graph)

    def write(self) -> Row:
        self._add_root()
        for call in self._graph.calls:
            if self._is_subagent(call):
                self._add_subagent(call)
            self._add_call(call)
        for run in self._runs:
            self._add_tool_run(run)
        self._add_verification()
        return self._out.as_request({"service.name": "gymweb"}, scope=SCOPE)

    # -- agents

    def _add_root(self) -> None:
        attempt, columns = self._attempt, self._attempt.columns
        root = self._out.add(
            self._out.span_id(ROOT),
            f"invoke_agent {attempt.agent}".strip(),
            {
                **self._agent_attributes(attempt.agent, self._graph.main_leaf),
                "gymweb.rollout.id": columns.get("rollout_id"),
                "gymweb.collection.id": columns.get("collection_id"),
                "gymweb.dataset": columns.get("dataset"),
                "gymweb.task.id": attempt.task.get("id"),
                "gymweb.task.index": attempt.task_index,
                "gymweb.repeat": attempt.repeat,
                "gymweb.stop_reason": attempt.stop_reason,
                "gymweb.reward": float(attempt.reward),
                "gymweb.reward_override": self._content(attempt.override.get("reason")),
            },
            at=0.0,
            duration=self._seconds,
        )
        root["events"] = list(self._evaluations())

    def _evaluations(self) -> Iterator[dict[str, Any]]:
        verification = self._verification
        scores = {"reward": self._attempt.reward, **self._attempt.components}
        for name, score in scores.items():
            yield {
                "name": "gen_ai.evaluation.result",
                "timeUnixNano": self._out.nanoseconds(self._seconds),
                "attributes": encode_attributes(
                    {
                        "gen_ai.evaluation.name": name,
                        "gen_ai.evaluation.score.value": float(score),
                        "gen_ai.evaluation.explanation": self._content(
                            verification.explanation if verification and name == "reward" else ""
                        ),
                    }
                ),
            }

    def _is_subagent(self, call: int) -> bool:
        return self._graph.calls[call].root_reason == "subagent" and not self._graph.parent(call)

    def _add_subagent(self, root: int) -> None:
        leaf = max(leaf for leaf in self._graph.calls if self._agent_of(leaf) == root)
        began, last = self._graph.calls[root].at, self._graph.calls[leaf]
        self._out.add(
            self._out.span_id(f"agent {root}"),
            "invoke_agent subagent",
            self._agent_attributes("subagent", leaf),
            parent=self._parent_of_subagent(self._graph.calls[root]),
            at=began,
            duration=last.at + last.duration - began,
        )

    def _parent_of_subagent(self, root: ModelCall) -> str:
        """Return the span of the tool call that started a subagent; if unknown, of the agent that did."""
        runs = [run for run in self._runs if run.call == root.spawned_by and run.call]
        around = [run for run in runs if run.at <= root.at <= run.at + run.duration]
        if runs:
            return self._out.span_id((around or runs)[0].name)
        return self._agent_span(root.spawned_by) if root.spawned_by in self._graph.calls else self._out.span_id(ROOT)

    def _agent_attributes(self, name: str, leaf: int) -> dict[str, Any]:
        """Return the attributes of the agent whose last call is `leaf`."""
        return {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": _PROVIDERS.get(self._attempt.provider, "openai"),
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": self._conversation,
            "session.id": self._conversation,
            "openinference.span.kind": "AGENT",
            **(self._exchange(leaf) if leaf else {}),
        }

    def _exchange(self, leaf: int) -> dict[str, Any]:
        """Return the prompt of the conversation of a call, and its reply."""
        first = self._graph.request(self._graph.path(leaf)[0])
        call = self._graph.calls[leaf]
        return {
            "gen_ai.request.model": call.model,
            "gen_ai.input.messages": self._content(as_messages(first)),
            "gen_ai.output.messages": self._content([reply_message(call.items, call.finish_reason)]),
        }

    def _agent_of(self, call: int) -> int:
        """Return the first call of the subagent that made a call; 0 for the main agent."""
        root = self._graph.path(call)[0]
        if self._is_subagent(root):
            return root
        lineage = self._graph.calls[root].lineage
        earlier = [one for one, event in self._graph.calls.items() if event.lineage == lineage and one < root]
        return self._agent_of(earlier[0]) if lineage and earlier else 0

    def _agent_span(self, call: int) -> str:
        return self._out.span_id(f"agent {self._agent_of(call)}")

    # -- model calls

    def _add_call(self, number: int) -> None:
        call = self._graph.calls[number]
        self._out.add(
            self._out.span_id(f"call {number}"),
            f"chat {call.model}".strip(),
            {
                **self._chat_attributes(call, self._input(number)),
                "gen_ai.response.id": call.response_id,
                "gen_ai.tool.definitions": self._tools(number),
                "gymweb.call": number,
                "gymweb.retry_of": call.retry_of or None,
                "gymweb.root_reason": call.root_reason,
                "gymweb.messages": self._messages if self._messages == "new" else None,
            },
            parent=self._agent_span(number),
            kind=CLIENT,
            at=call.at,
            duration=call.duration,
        )

    def _input(self, number: int) -> list[Item]:
        """Return the request of a call, or with messages `new` its items that the call before did not have."""
        parent = self._graph.parent(number)
        request = self._graph.request(number) if self._messages != "none" else []
        if self._messages == "all" or not parent:
            return request
        before = len(self._graph.request(parent)) + len(self._graph.calls[parent].items)
        kept = before if self._graph.is_line else self._graph.calls[number].kept
        return request[kept:]

    def _tools(self, number: int) -> str:
        """Return the tools of a call. Unless `messages` is `all`, only the first call of a conversation has tools."""
        has_tools = self._messages == "all" or not self._graph.parent(number)
        return self._content(self._graph.tools(number)) if has_tools else ""

    def _chat_attributes(self, call: ModelCall | JudgeCall, asked: list[Item]) -> dict[str, Any]:
        stop = call.sampling.get("stop")
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(self._attempt.provider, "openai"),
            "gen_ai.conversation.id": self._conversation,
            "gen_ai.request.model": call.model,
            "gen_ai.response.model": call.version or call.model,
            "gen_ai.response.finish_reasons": [call.finish_reason] if call.finish_reason else [],
            **{f"gen_ai.request.{theirs}": _number(call.sampling.get(ours)) for ours, theirs in _SAMPLING.items()},
            "gen_ai.request.stop_sequences": [stop] if isinstance(stop, str) else stop,
            **_usage(call.usage),
            "gen_ai.input.messages": self._content(as_messages(asked)),
            "gen_ai.output.messages": self._content([reply_message(call.items, call.finish_reason)]),
            "gymweb.retries": call.retries or None,
            "session.id": self._conversation,
            "openinference.span.kind": "LLM",
        }

    # -- tools and verification

    def _add_tool_run(self, run: ToolRun) -> None:
        self._out.add(
            self._out.span_id(run.name),
            f"execute_tool {run.tool}".strip(),
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": run.tool,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": run.call_id,
                "gen_ai.tool.call.arguments": self._content(run.arguments),
                "gen_ai.tool.call.result": self._content(run.output),
                "gen_ai.conversation.id": self._conversation,
                "error.type": run.error,
                "session.id": self._conversation,
                "openinference.span.kind": "TOOL",
            },
            parent=self._agent_span(run.call) if run.call else self._out.span_id(ROOT),
            at=run.at,
            duration=run.duration,
            problem=run.error,
        )

    @property
    def _verification(self) -> Verification | None:
        found = [event for event in self._attempt.events if isinstance(event, Verification)]
        return found[-1] if found else None

    def _add_verification(self) -> None:
        verification = self._verification
        if verification is not None:
            self._out.add(
                self._out.span_id(VERIFICATION),
                "verification",
                {
                    "gymweb.stop_reason": verification.stop_reason,
                    "gymweb.verifier.reward": verification.reward,
                    "session.id": self._conversation,
                    "openinference.span.kind": "EVALUATOR",
                },
                parent=self._out.span_id(ROOT),
                at=verification.at,
                duration=verification.duration,
            )
        for number, event in enumerate(self._attempt.events):
            if isinstance(event, JudgeCall):
                is_verifying = verification is not None and event.role == "judge"
                self._add_judge_call(number, event, parent=VERIFICATION if is_verifying else ROOT)

    def _add_judge_call(self, number: int, call: JudgeCall, *, parent: str) -> None:
        self._out.add(
            self._out.span_id(f"event {number}"),
            f"chat {call.model}".strip(),
            {
                **self._chat_attributes(call, call.prompt),
                "gen_ai.agent.name": call.judge,
                "gymweb.role": call.role,
                "gymweb.question": call.question,
            },
            parent=self._out.span_id(parent),
            kind=CLIENT,
            at=call.at,
            duration=call.duration,
            problem=call.problem if self._messages != "none" or not call.problem else "No valid verdict",
        )

    def _content(self, value: object) -> str:
        """Return content that a model, a tool or a user wrote as text. Return nothing if messages are left out."""
        return as_text(value) if value and self._messages != "none" else ""


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {f"gen_ai.usage.{theirs}": usage.get(ours) for ours, theirs in _USAGE.items()}


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


FORMATS = [
    Format(
        slug="otel_genai",
        title="OpenTelemetry GenAI spans",
        trainer="OpenTelemetry",
        row_kind="scored",
        keeps_all=True,
        reads_graph=True,
        omits_tokens=True,
        rows=genai_rows,
        features=lambda _: {},
        choices={"messages": ("all", "new", "none")},
        encodings=("jsonl", "jsonl.gz"),
        note="One trace per rollout, each line the body of an OTLP/HTTP request. When the export is ready, its page "
        "can send the traces to Langfuse, Phoenix, MLflow or another OTLP receiver. Not a training format.",
    ),
]
