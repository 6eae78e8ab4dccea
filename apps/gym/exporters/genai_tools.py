"""The executed tool calls of a trace, each with the model call that asked for it."""

from collections import Counter
from typing import Any, NamedTuple

from apps.gym.traces.events import ModelCall, ToolResult
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import Item, function_calls, item_type, named_calls, pair_results


class ToolRun(NamedTuple):
    """One executed tool call.

    `name` is unique in the trace. `call` is the number of the model call that asked for it, 0 if unknown. `at` and
    `duration` are in seconds.
    """

    name: str
    call: int
    call_id: str
    tool: str
    arguments: Any
    output: Any
    error: str
    at: float
    duration: float


def find_tool_runs(graph: TraceGraph) -> list[ToolRun]:
    """Return the recorded tool results, then the results that a captured agent only reported in its next request."""
    recorded = list(_recorded(graph))
    # Recorded results are told apart by call and id: models repeat ids, also within a reply.
    known = Counter((run.call, run.call_id) for run in recorded)
    return [*recorded, *_reported(graph, known)]


def _recorded(graph: TraceGraph) -> list[ToolRun]:
    numbers = {seq: call for call, seq in graph.seq_of.items()}
    unanswered: list[tuple[int, Item]] = []
    runs = []
    for seq, event in zip(graph.seqs, graph.events, strict=True):
        if isinstance(event, ModelCall) and seq in numbers:
            unanswered = [*((numbers[seq], item) for item in function_calls(event.items)), *unanswered]
        elif isinstance(event, ToolResult):
            named = named_calls([item for _, item in unanswered])
            found = pair_results(named, [(event.call_id, event.name)])
            call, item = unanswered.pop(found[0]) if found else (0, Item())
            arguments = item.get("arguments")
            runs.append(
                ToolRun(
                    name=f"tool {seq}",
                    call=call,
                    call_id=event.call_id,
                    tool=event.name or str(item.get("name", "")),
                    arguments=arguments,
                    output=event.output,
                    error=event.error,
                    at=event.at,
                    duration=event.duration,
                )
            )
    return runs


def _reported(graph: TraceGraph, known: Counter[tuple[int, str]]) -> list[ToolRun]:
    """Return results without a record: the tool ran between the reply with its call and the next request."""
    runs = []
    for number, event in graph.calls.items():
        path = graph.path(number)[:-1]
        seen = Counter[tuple[int, str]]()
        for item in event.items_in:
            call_id = str(item.get("call_id", ""))
            if item_type(item) != "function_call_output":
                continue
            caller = next((one for one in reversed(path) if _asked(graph, one, call_id)), 0)
            asked, place = _asked(graph, caller, call_id) if caller else [], seen[caller, call_id]
            seen[caller, call_id] += 1
            if not known[caller, call_id] <= place < len(asked):
                continue
            call = asked[place]
            known[caller, call_id] += 1
            began = graph.calls[caller].at + graph.calls[caller].duration
            runs.append(
                ToolRun(
                    name=f"result {caller} {call_id}" + (f" {place}" if place else ""),
                    call=caller,
                    call_id=call_id,
                    tool=str(call.get("name", "")),
                    arguments=call.get("arguments"),
                    output=item.get("output"),
                    error="",
                    at=began,
                    duration=max(0.0, event.at - began),
                )
            )
    return runs


def _asked(graph: TraceGraph, number: int, call_id: str) -> list[Item]:
    return [call for call in function_calls(graph.calls[number].items) if str(call.get("call_id", "")) == call_id]
