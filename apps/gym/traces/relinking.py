"""Derive the links between the calls of a captured trace again, by replaying the calls in their order.

Links are the fields of a call that place it in its graph, see apps.gym.traces.parents. GymWeb 0.2 stored no thread ids.
For its traces, two assignments are tried: no thread ids, and one id for each agent. The links change only if neither
gives the stored ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from apps.gym.traces.call_records import Declared, Place, Role
from apps.gym.traces.events import ModelCall, SessionOpened, TraceUnion
from apps.gym.traces.graph import TraceGraph
from apps.gym.traces.graph_tokens import GraphTokens
from apps.gym.traces.items import Item
from apps.gym.traces.parents import ParentFinder
from apps.gym.traces.tokens import TokenCapture, TokensUnreadable


def relink(events: Sequence[TraceUnion]) -> dict[int, ModelCall]:
    """Return the calls whose links change, by position in `events`. A linear trace has none."""
    graph = TraceGraph(events)
    # A request with such a note cannot be built again, and its links are those of current rules.
    if graph.is_line or any(call.edited for call in graph.calls.values()):
        return {}
    replays = (_replay(graph, threads) for threads in _threads(graph))
    places = next(replays)
    stored = _links(graph.calls)
    if _links(places) == stored or any(_links(others) == stored for others in replays):
        return {}
    changed = {}
    for position, event in enumerate(events):
        place = places.get(event.call) if isinstance(event, ModelCall) else None
        if place is not None and isinstance(event, ModelCall):
            linked = _linked(event, place)
            if linked != event:
                changed[position] = linked
    return changed


def _linked(call: ModelCall, place: Place) -> ModelCall:
    fields: dict[str, Any] = {name: getattr(place, name) for name in place.__struct_fields__}
    if (place.parent, place.kept) == (call.parent, call.kept):
        # The request as the client sent it.
        del fields["items_in"], fields["tools_in"]
        return replace(call, **fields | {"thread": call.thread})
    return replace(call, **fields | {"thread": call.thread}, seen=place.seen)


def _threads(graph: TraceGraph) -> Iterator[Mapping[int, int]]:
    known = {number: call.thread for number, call in graph.calls.items() if call.thread is not None}
    if len(known) == len(graph.calls):
        yield known
        return
    yield {}
    agents: dict[int, int] = {}
    for number, call in graph.calls.items():
        inherited = agents.get(graph.parent(number) or call.retry_of, 1)
        agents[number] = number if call.root_reason == "subagent" and not call.retry_of else inherited
    yield agents


def _links(calls: Mapping[int, ModelCall | Place]) -> list[tuple[Any, ...]]:
    """Return the links in comparable form: only the order of lineages matters, not their numbers."""
    lineages: dict[int, int] = {}
    return [
        (
            number,
            one.parent,
            one.kept,
            lineages.setdefault(one.lineage, len(lineages)),
            one.root_reason,
            one.spawned_by,
            one.retry_of,
            one.ambiguous,
        )
        for number, one in sorted(calls.items())
    ]


def _replay(graph: TraceGraph, threads: Mapping[int, int]) -> dict[int, Place]:
    """Return the place of each call. A call completes before all calls that begin after its end."""
    opened = next((event.tools for event in graph.events if isinstance(event, SessionOpened)), [])
    finder = ParentFinder(opened)
    tokens = GraphTokens(graph.calls, graph.parent)
    conversations: dict[int, list[Item]] = {}
    places: dict[int, Place] = {}
    running: list[int] = []

    def complete(before: float) -> None:
        ended = [one for one in running if graph.calls[one].at + graph.calls[one].duration <= before]
        for one in sorted(ended, key=lambda one: graph.calls[one].at + graph.calls[one].duration):
            running.remove(one)
            places[one] = finder.complete(one, graph.calls[one].items, _capture(tokens, graph.calls[one], one))

    for number, call in graph.calls.items():
        complete(call.at)
        request = [*conversations.get(graph.parent(number), [])[: call.kept], *call.items_in]
        conversations[number] = [*request, *call.items]
        thread = str(threads.get(number) or "")
        spawner = graph.calls.get(call.spawned_by)
        parent = str(spawner.thread or "") if spawner else ""
        finder.place_request(
            request,
            graph.tools(number),
            thread,
            call=number,
            previous=call.previous,
            declared=Declared(cast("Role", call.declared), parent),
        )
        running.append(number)
    complete(float("inf"))
    return places


def _capture(tokens: GraphTokens, call: ModelCall, number: int) -> TokenCapture | None:
    try:
        return None if call.tokens is None else tokens.capture(number)
    except TokensUnreadable:
        return None
