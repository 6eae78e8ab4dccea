"""The executed tool calls of a trace, each with the model call that asked for it."""

from typing import Any, NamedTuple

from apps.gym.traces.events import ModelCall, ToolResult
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.items import Item, function_calls, item_type, pair_results


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
    # Recorded results are told apart by call and id: models repeat ids.
    known = {(run.call, run.call_id) for run in recorded}
    return [*recorded, *_reported(graph, known)]


def _recorded(graph: TraceGraph) -> list[ToolRun]:
    numbers = {seq: call for call, seq in graph.seq_of.items()}
    asked: dict[str, tuple[int, Item]] = {}
    asker, unanswered = 0, list[Item]()
    runs = []
    for seq, event in zip(graph.seqs, graph.events, strict=True):
        if isinstance(event, ModelCall) and seq in numbers:
            asker, unanswered = numbers[seq], function_calls(event.items)
            asked.update((str(item.get("call_id", "")), (asker, item)) for item in unanswered)
        elif isinstance(event, ToolResult):
            call, item = asked.get(event.call_id, (0, {}))
            # The model may have given several calls of the reply this id.
            named = [(str(one.get("call_id", "")), str(one.get("name", ""))) for one in unanswered]
            if found := pair_results(named, [(event.call_id, event.name)]):
                call, item = asker, unanswered.pop(found[0])
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


def _reported(graph: TraceGraph, known: set[tuple[int, str]]) -> list[ToolRun]:
    """Return results without a record: the tool ran between the reply with its call and the next request."""
    runs = []
    for number, event in graph.calls.items():
        path = graph.path(number)[:-1]
        for item in event.items_in:
            call_id = str(item.get("call_id", ""))
            if item_type(item) != "function_call_output":
                continue
            asked = next(((one, call) for one in reversed(path) for call in _asked(graph, one, call_id)), None)
            if asked is None or (asked[0], call_id) in known:
                continue
            caller, call = asked
            known.add((caller, call_id))
            began = graph.calls[caller].at + graph.calls[caller].duration
            runs.append(
                ToolRun(
                    name=f"result {caller} {call_id}",
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
