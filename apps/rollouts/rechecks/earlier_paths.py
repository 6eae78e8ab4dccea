"""The main path of captured calls as earlier rules chose it: verifiers saw that one."""

from collections import defaultdict

from apps.gym.traces.events import AgentEnd
from apps.gym.traces.graph import TraceGraph


def earlier_leaf(graph: TraceGraph) -> int:
    """Return the last call of the main path by rules 0 and 1; 0 without calls.

    It was the call that `finish` named, else the last leaf of the first lineage with more than one call.
    """
    ends = [event.call for event in graph.events if isinstance(event, AgentEnd) and event.command == "finish"]
    if ends and ends[-1] in graph.calls:
        return ends[-1]
    counted = _counted(graph)
    leaves = sorted(counted - {graph.parent(call) for call in counted})
    if not leaves:
        return 0
    calls: dict[int, list[int]] = defaultdict(list)
    for call, event in graph.calls.items():
        calls[event.lineage or 1].append(call)
    lineages = [found for _, found in sorted(calls.items())]
    firsts = [found for found in lineages if graph.calls[found[0]].root_reason == "first"] or lineages[:1]
    first = next((found for found in firsts if len(counted.intersection(found)) > 1), firsts[-1])
    own = [leaf for leaf in leaves if leaf in first]
    descendants = [leaf for leaf in leaves if not set(first).isdisjoint(graph.path(leaf))]
    return (own or descendants or leaves)[-1]


def _counted(graph: TraceGraph) -> set[int]:
    """Return the calls that counted: of several with the same request, the last one."""
    continued = {graph.parent(call) for call in graph.calls}
    unserved = {call for event in graph.events if isinstance(event, AgentEnd) for call in event.unserved}
    groups: dict[int, list[int]] = defaultdict(list)
    for call, event in graph.calls.items():
        groups[event.retry_of or call].append(call)
    counted: set[int] = set()
    for calls in groups.values():
        served = [call for call in calls if graph.calls[call].served and call not in unserved]
        counted.update([call for call in calls if call in continued] or served[-1:])
    return counted
