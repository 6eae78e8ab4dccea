"""Decide whether a captured agent ended without a reply because its model failed."""

from collections.abc import Sequence

from apps.gym.traces.events import AgentEnd, FailedCall, TraceUnion
from apps.gym.traces.graph import TraceGraph


def find_unanswered(events: Sequence[TraceUnion], failed: Sequence[FailedCall] | None = None) -> FailedCall | None:
    """Return the last failed call if the agent got no reply afterwards, and its answer is not from a reply.

    Only a call that began after the failure is a reply to it, for example a retry: a call that was already in flight
    asked something else. By default, `failed` are those that the end of the attempt names.
    """
    graph = TraceGraph(events)
    end = next((event for event in events if isinstance(event, AgentEnd)), AgentEnd(command="fail"))
    failed = failed or end.failed_calls
    if failed is None:
        # Earlier versions did not store which calls failed. They are the unserved ones without an event.
        failed = [FailedCall(call=one, latest=one) for one in end.unserved if one not in graph.calls]
    unanswered = [one for one in failed if one.latest >= max(graph.calls, default=0)]
    if not unanswered or graph.main_path.reason in ("named", "answer", "contains", "earlier"):
        return None
    return unanswered[-1]
