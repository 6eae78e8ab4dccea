"""Comparisons of a collection's rollouts that show a wrong set-up."""

from collections import Counter, defaultdict
from typing import Any

from apps.gym.setup_notices import EQUAL_ATTEMPTS, shown_notices
from apps.gym.traces.events import ModelCall, decode_event
from apps.rollouts.models import Collection, Rollout, TraceEvent

COMPARED = 2_000
"""Rollouts that are searched for equal attempts, those with the lowest ids."""
MIN_EQUAL = 6
"""Attempts that must equal an earlier attempt at their task."""
EQUAL_SHARE = 0.9
"""Share of the tasks with several attempts whose attempts must be equal."""
MIN_TOKENS = 32
"""Output tokens from which attempts count: a model that is sure writes short answers alike."""


def shows_common_notice(collection: Collection) -> bool:
    """Return True if all ended rollouts show the same notice. Call it while few have ended."""
    ended, found = collection.ended, collection.rollouts.exclude(notices="").values_list("notices", flat=True)
    counts = Counter(name for names in found for name in names.split())
    counts[EQUAL_ATTEMPTS] = ended if find_equal_attempts(collection) else 0
    return any(counts[notice.name] == ended for notice in shown_notices(counts, reported_cuts=0))


def find_equal_attempts(collection: Collection) -> list[int]:
    """Return the rollouts of tasks whose attempts are all equal, if these are at least EQUAL_SHARE of the tasks.

    Attempts are equal if their answers, tokens, turns and calls are. Short attempts do not count. A greedy server may
    answer a task differently now and then: batches change its rounding.
    """
    if (collection.repeats < 2 and not collection.split_repeats) or collection.policy_model.is_scripted:
        return []
    columns = ("status", "task", "pk", "answer", "stop_reason", "input_tokens", "output_tokens", "turns", "tool_calls")
    attempts: dict[int, dict[int, tuple[Any, ...]]] = defaultdict(dict)
    for status, task, pk, *figures in collection.rollouts.order_by("pk").values_list(*columns)[:COMPARED]:
        if status == Rollout.Status.COMPLETED and figures[3] >= MIN_TOKENS:
            attempts[task][pk] = tuple(figures)
    groups = [group for group in attempts.values() if len(group) > 1]
    equal = [group for group in groups if len(set(group.values())) == 1]
    found = [pk for group in equal for pk in group]
    are_equal = len(equal) >= EQUAL_SHARE * len(groups) and len(found) - len(equal) >= MIN_EQUAL
    return found if are_equal and _is_sampled(collection, found[0]) else []


def _is_sampled(collection: Collection, rollout: int) -> bool:
    """Return False if the plan or the task asked for the most likely tokens."""
    calls = TraceEvent.objects.filter(rollout=rollout, kind="model_call").order_by("attempt", "seq")
    payload = calls.values_list("payload", flat=True).first()
    call = decode_event(payload) if payload else None
    sampling = call.sampling if isinstance(call, ModelCall) else collection.snapshot.get("sampling", {})
    return sampling.get("temperature") != 0 and sampling.get("top_k") != 1 and sampling.get("top_p") != 0
