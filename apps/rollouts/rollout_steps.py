"""Read the steps of rollouts, of one attempt or of several rollouts of a task to compare."""

from collections.abc import Sequence

from django.db.models import Q

from apps.gym.request_refusals import Refusal
from apps.gym.traces.alignment import Step, steps_of
from apps.gym.traces.events import decode_event
from apps.gym.traces.graph import is_captured
from apps.rollouts.models import Rollout, TraceEvent

FEWEST, MOST = 2, 6
STEPS = 300
"""Maximum steps of each rollout that are compared. The cost grows quadratically."""
EVENTS = 2 * STEPS


class CannotCompare(Refusal, status=409, code="cannot-compare"):
    """Raised if these rollouts cannot be compared."""


def find_rollouts(ids: Sequence[int]) -> list[Rollout]:
    """Return the rollouts in the order of the ids.

    Raise CannotCompare for too few, too many or unknown ids, or rollouts of different tasks.
    """
    wanted = list(dict.fromkeys(ids))
    if not FEWEST <= len(wanted) <= MOST:
        given = "1 was" if len(wanted) == 1 else f"{len(wanted)} were"
        raise CannotCompare(f"Choose {FEWEST} to {MOST} rollouts of one task: {given} given.")
    rows = Rollout.objects.filter(Q(pk__in=wanted) & Q(collection__is_being_deleted=False))
    found = {each.pk: each for each in rows.select_related("task__version__dataset", "collection__policy_model")}
    missing = [f"#{pk}" for pk in wanted if pk not in found]
    if missing:
        raise CannotCompare(f"Unknown rollouts: {', '.join(missing)}.")
    rollouts = [found[pk] for pk in wanted]
    first = rollouts[0].task
    for other in (each.task for each in rollouts[1:]):
        is_same_key = first.key and (other.dataset_id, other.key) == (first.dataset_id, first.key)
        if other.pk != first.pk and not is_same_key:
            raise CannotCompare("These rollouts belong to different tasks. Choose rollouts of one task.")
    return rollouts


def read_steps(rollout: Rollout, attempt: int) -> list[Step]:
    """Return all steps of an attempt. If it is captured, return the steps of its main path."""
    graph = rollout.graph(attempt=attempt)
    return steps_of(graph.numbered_line(graph.main_leaf))


def read_first_steps(rollout: Rollout) -> tuple[list[Step], int]:
    """Return the first steps of the latest attempt, and the number of events left out after them."""
    events = TraceEvent.objects.filter(rollout=rollout, attempt=rollout.attempt).order_by("seq")
    rows = list(events.values_list("seq", "payload")[: EVENTS + 1])
    read = [(seq, decode_event(payload)) for seq, payload in rows[:EVENTS]]
    if is_captured(event for _, event in read):
        steps = read_steps(rollout, rollout.attempt)
        return steps[:STEPS], len({step.seq for step in steps[STEPS:]})
    steps = steps_of(read)
    whole = len(rows) <= EVENTS and len(steps) <= STEPS
    if whole:
        return steps, 0
    kept = steps[:STEPS]
    return kept, events.filter(seq__gt=kept[-1].seq).count() if kept else 0
