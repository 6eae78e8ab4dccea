"""Decide whether a captured agent ended without a reply because its model failed."""

import re
from collections.abc import Sequence

from apps.gym.traces.events import AgentEnd, FailedCall, ModelCall, TraceUnion
from apps.gym.traces.items import assistant_text, function_calls


def find_unanswered(
    failed: Sequence[FailedCall], calls: Sequence[ModelCall], *, answer: str = "", call: int = 0
) -> FailedCall | None:
    """Return the last failed call if the agent got no reply afterwards and its answer is not from a reply.

    Only a call that began after the failure is a reply to it, for example a retry: a call that was already in flight
    asked something else. `answer` and `call` are those of the agent's `finish`.
    """
    last = max((one.call for one in calls), default=0)
    unanswered = [one for one in failed if one.latest >= last]
    if not unanswered or any(one.call == call or _contains(one, answer.strip()) for one in calls):
        return None
    return unanswered[-1]


def is_context_full(calls: Sequence[ModelCall], *, answer: str = "", call: int = 0) -> bool:
    """Return True if the agent got no reply after its conversation was longer than the context of the model."""
    full = [FailedCall(call=one.call, latest=one.call) for one in calls if one.finish_reason == "context_length"]
    replies = [one for one in calls if one.finish_reason != "context_length"]
    return find_unanswered(full, replies, answer=answer, call=call) is not None


def find_stored_failure(events: Sequence[TraceUnion]) -> FailedCall | None:
    """Return the failed call because of which the agent of a stored trace finished without a reply.

    Traces of earlier versions do not name the failed calls. There they are the unserved ones that were not stored.
    """
    end = next((event for event in reversed(events) if isinstance(event, AgentEnd)), None)
    if end is None or end.command != "finish":
        return None
    calls = [event for event in events if isinstance(event, ModelCall)]
    failed = end.failed_calls
    if failed is None:
        stored = {one.call for one in calls}
        failed = [FailedCall(call=one, latest=one) for one in end.unserved if one not in stored]
    return find_unanswered(failed, calls, answer=end.answer, call=end.call)


def _contains(call: ModelCall, answer: str) -> bool:
    """Return True if the answer is in the text of a reply, or in the arguments of its calls, as whole words."""
    if not answer:
        return False
    whole = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
    texts = [assistant_text(call.items), *(str(one.get("arguments", "")) for one in function_calls(call.items))]
    return any(whole.search(text) for text in texts)
