"""Decide whether a captured agent ended without a reply because its model failed."""

import re
from collections.abc import Iterable, Sequence

from apps.gym.traces.events import AgentEnd, FailedCall, ModelCall, TraceUnion
from apps.gym.traces.items import assistant_text


def find_unanswered(events: Sequence[TraceUnion], failed: Sequence[FailedCall] | None = None) -> FailedCall | None:
    """Return the last failed call if the agent got no reply afterwards, and its answer is not from a reply.

    Only a call that began after the failure is a reply to it, for example a retry: a call that was already in flight
    asked something else. By default, `failed` are those that the end of the attempt names.
    """
    calls = {event.call: event for event in events if isinstance(event, ModelCall)}
    end = next((event for event in events if isinstance(event, AgentEnd)), AgentEnd(command="fail"))
    failed = failed or end.failed_calls
    if failed is None:
        # Earlier versions did not store which calls failed. They are the unserved ones without an event.
        failed = [FailedCall(call=one, latest=one) for one in end.unserved if one not in calls]
    unanswered = [one for one in failed if one.latest >= max(calls, default=0)]
    if not unanswered or end.call in calls or _is_written(end.answer.strip(), calls.values()):
        return None
    return unanswered[-1]


def _is_written(answer: str, calls: Iterable[ModelCall]) -> bool:
    """Return True if a reply has the answer in its text, or in the arguments of its calls, as whole words."""
    whole = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
    texts = (assistant_text([item]) or str(item.get("arguments", "")) for call in calls for item in call.items)
    return bool(answer) and any(map(whole.search, texts))
