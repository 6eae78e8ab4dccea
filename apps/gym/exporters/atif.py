"""Trajectories in ATIF 1.7 (Agent Trajectory Interchange Format), for viewers and analysis tools.

Input items become steps of the system and the user, replies steps of the agent, and results of tools observations of
the step with the call. ATIF has no field for a reward; `extra.gymweb` has it. Replies that the rollout did not sample,
such as few-shot examples, are marked `is_copied_context`, so that readers do not train on them.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from apps.gym.exporters.branches import BRANCHES, find_leaves
from apps.gym.exporters.protocol import MANY, Attempt, Format, Options, Row
from apps.gym.traces.events import ModelCall, ToolResult, TraceUnion
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import Item, call_arguments, is_by_model, item_type, join_parts, text_of
from apps.gym.traces.messages import nested_tools, offered_tools
from apps.gym.traces.responses import with_unique_ids
from apps.gym.traces.tokens import TokensUnreadable, restore_tokens
from apps.gym.trainability import Dropped

VERSION = "ATIF-v1.7"
_METRICS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "cached_tokens": "cached_tokens"}
_TOKENS = {
    "prompt_token_ids": "prompt_token_ids",
    "generation_token_ids": "completion_token_ids",
    "generation_log_probs": "logprobs",
}
_IMAGES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


def atif_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    """Yield the trajectory of one path, or of each path that the option `branches` selects, with embedded subagents."""
    graph = TraceGraph(attempt.events)
    if not graph.main_leaf:
        raise Dropped("no_assistant_turn")
    if options.branches not in MANY:
        yield _document(attempt, graph, find_leaves(graph, options)[0], set())
        return
    trained: set[int] = set()
    leaves = [graph.main_leaf, *(leaf for leaf in find_leaves(graph, options) if leaf != graph.main_leaf)]
    documents = {leaf: _document(attempt, graph, leaf, trained) for leaf in leaves}
    _continue(graph, documents)
    subagents = {leaf for leaf in leaves[1:] if _root(graph, leaf).root_reason == "subagent"}
    for leaf in sorted(subagents):
        _embed(graph, documents, leaf, subagents)
    yield from (document for leaf, document in documents.items() if leaf not in subagents)


def _root(graph: TraceGraph, leaf: int) -> ModelCall:
    return graph.calls[graph.path(leaf)[0]]


def _name(attempt: Attempt, leaf: int) -> str:
    return f"{attempt.columns.get('rollout_id', 0)}-{leaf}"


def _continue(graph: TraceGraph, documents: dict[int, Row]) -> None:
    """Name the trajectory that continues each one after a compaction."""
    for leaf, document in documents.items():
        root = _root(graph, leaf)
        if root.root_reason == "compaction":
            earlier = [one for one in documents if one < root.call and graph.calls[one].lineage == root.lineage]
            if earlier:
                documents[max(earlier)]["continued_trajectory_ref"] = document["trajectory_id"]


def _embed(graph: TraceGraph, documents: dict[int, Row], leaf: int, subagents: set[int]) -> None:
    """Put a subagent into the trajectory with the call that started it; if unknown, into the main one."""
    spawner = _root(graph, leaf).spawned_by
    holders = [one for one in documents if one not in subagents and spawner in graph.path(one)]
    holder = documents[holders[0] if holders else graph.main_leaf]
    holder.setdefault("subagent_trajectories", []).append(documents[leaf])
    step = next((step for step in holder["steps"] if step.get("extra", {}).get("call") == spawner), None)
    if spawner and step:
        results = step.setdefault("observation", {"results": []})["results"]
        results.append({"subagent_trajectory_ref": [{"trajectory_id": documents[leaf]["trajectory_id"]}]})


def _document(attempt: Attempt, graph: TraceGraph, leaf: int, trained: set[int]) -> Row:
    try:
        events = with_unique_ids(restore_tokens(graph.line(leaf)))
    except TokensUnreadable:
        raise Dropped("tokens_unreadable") from None
    calls = graph.calls_on(leaf)
    steps = _Steps(calls, trained)
    for event in events:
        steps.add(event)
    trained.update(calls)
    model = graph.calls[leaf].model
    tools = nested_tools(offered_tools(events, attempt.task))
    agent = {"name": attempt.agent or "gymweb", "version": attempt.model_version or "unknown"}
    return {
        "schema_version": VERSION,
        "session_id": str(attempt.columns.get("rollout_id", 0)),
        "trajectory_id": _name(attempt, leaf),
        "agent": {
            **agent,
            **({"model_name": model} if model else {}),
            **({"tool_definitions": tools} if tools else {}),
        },
        "steps": steps.steps,
        "final_metrics": {**steps.totals, "total_steps": len(steps.steps)},
        "extra": {"gymweb": _origin(attempt, graph.calls[leaf].lineage or 1)},
    }


def _origin(attempt: Attempt, lineage: int) -> dict[str, Any]:
    told = {
        **{name: value for name, value in attempt.columns.items() if value is not None},
        "reward": float(attempt.reward),
        "reward_components": {name: float(value) for name, value in attempt.components.items()},
        "reward_override": attempt.override,
        "stop_reason": attempt.stop_reason,
        "task": str(attempt.task.get("id") or ""),
    }
    return {**{name: value for name, value in told.items() if value not in ("", {})}, "lineage": lineage}


class _Steps:
    """Builds the steps of one line. `trained` are calls that another trajectory has."""

    def __init__(self, calls: list[int], trained: set[int]) -> None:
        self.steps: list[Row] = []
        self.totals: dict[str, int] = {}
        self._calls = iter(calls)
        self._trained = set(trained)

    def add(self, event: TraceUnion) -> None:
        if isinstance(event, ModelCall):
            self._add_reply(event)
        elif isinstance(event, ToolResult):
            self._observe(event.call_id, _content(event.output))
        else:
            self._add_input(event.new_items())

    def _add_reply(self, call: ModelCall) -> None:
        number = next(self._calls)
        step = self._agent_step(call.items)
        extra: dict[str, Any] = {"call": number, **({"seconds": call.at} if call.at else {})}
        step["extra"] = {**step.get("extra", {}), **extra}
        if call.model:
            step["model_name"] = call.model
        if number in self._trained:
            step["is_copied_context"] = True
            return
        counts: dict[str, Any] = {theirs: call.usage[ours] for ours, theirs in _METRICS.items() if ours in call.usage}  # type: ignore[literal-required]
        for name, count in counts.items():
            self.totals[f"total_{name}"] = self.totals.get(f"total_{name}", 0) + count
        last = call.items[-1] if call.items else {}
        metrics = counts | {theirs: last[ours] for ours, theirs in _TOKENS.items() if ours in last}
        if metrics:
            step["metrics"] = metrics

    def _add_input(self, items: list[Item]) -> None:
        for by_model, run in groupby(items, is_by_model):
            if by_model:
                self._agent_step(list(run))["is_copied_context"] = True
                continue
            for item in run:
                kind = item_type(item)
                if kind == "function_call_output":
                    self._observe(str(item.get("call_id", "")), _content(item.get("output")))
                elif kind == "message":
                    source = "system" if item.get("role") in ("system", "developer") else "user"
                    self._step(source, _content(item.get("content")))
                else:
                    raise Dropped("unknown_item")

    def _step(self, source: str, message: Any) -> Row:
        step = {"step_id": len(self.steps) + 1, "source": source, "message": message}
        self.steps.append(step)
        return step

    def _agent_step(self, items: list[Item]) -> Row:
        texts = (text_of(item) for item in items if item_type(item) == "message")
        step = self._step("agent", "\n\n".join(filter(None, texts)))
        thoughts = (text_of(item) for item in items if item_type(item) == "reasoning")
        if reasoning := "\n\n".join(filter(None, thoughts)):
            step["reasoning_content"] = reasoning
        if calls := [_tool_call(item) for item in items if item_type(item) == "function_call"]:
            step["tool_calls"] = calls
        return step

    def _observe(self, call_id: str, content: Any) -> None:
        """Add a result to the step of its call; without such a step, to the last step of the agent."""
        agents = [step for step in reversed(self.steps) if step["source"] == "agent"]
        called = [
            step for step in agents if any(call["tool_call_id"] == call_id for call in step.get("tool_calls", ()))
        ]
        if not agents:
            self._step("user", content)
            return
        results = (called or agents)[0].setdefault("observation", {"results": []})["results"]
        results.append({**({"source_call_id": call_id} if called else {}), "content": content})


def _tool_call(item: Item) -> Row:
    arguments = call_arguments(item)
    raw = {} if arguments is not None else {"extra": {"raw_arguments": str(item.get("arguments"))}}
    call = {"tool_call_id": str(item.get("call_id", "")), "function_name": str(item.get("name", ""))}
    return {**call, "arguments": arguments or {}, **raw}


def _content(content: Any) -> Any:
    """Return text, or parts if there are images. Raises Dropped for other files."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    parts = [_part(part) for part in content if isinstance(part, dict)]
    if all(part["type"] == "text" for part in parts):
        return join_parts((part["text"] for part in parts), by_model=False)
    return parts


def _part(part: dict[str, Any]) -> Row:
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    url = part.get("image_url")
    if part.get("type") != "input_image" or not isinstance(url, str):
        raise Dropped("file_content")
    named = url.partition(";")[0].removeprefix("data:image/") if url.startswith("data:") else url.rpartition(".")[2]
    if named.lower() not in _IMAGES:
        raise Dropped("image_content")
    return {"type": "image", "source": {"media_type": _IMAGES[named.lower()], "path": url}}


FORMATS = [
    Format(
        slug="atif",
        title="ATIF trajectories",
        trainer="ATIF",
        row_kind="scored",
        keeps_all=True,
        rows=atif_rows,
        features=lambda _: {},
        choices={"branches": BRANCHES},
        encodings=("jsonl", "jsonl.gz"),
        note="One ATIF 1.7 trajectory per line. With all branches, subagents are embedded in "
        "`subagent_trajectories`, and every other path is a line of its own. `extra.gymweb` has the reward. Do not "
        "train on `is_copied_context` steps.",
    ),
]
