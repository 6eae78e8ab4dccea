"""Build the reviewer's view of an item: its rollouts, each as a side labelled A, B, …, without what the queue hides.

Rollout ids are left out, too.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from apps.gym.traces.events import TraceUnion, encode_event
from apps.gym.traces.graph import TraceGraph, is_captured
from apps.gym.traces.items import input_items
from apps.reviews.models import Queue, Review
from apps.reviews.queues.blind_events import EVERYTHING, Visibility, hide_results
from apps.reviews.queues.hidden_items import find_hidden, will_be_reviewed_again
from apps.rollouts.models import Rollout, TraceEvent

LABELS = "ABCDEF"
MAX_EVENTS = 2_000
"""Maximum events of each rollout. The number of events left out is reported."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout as shown to the reviewer.

    `events` are (seq, event), and `left_out` counts the events after them. `reward` and `model` are None if hidden.
    """

    label: str
    events: list[tuple[int, TraceUnion]]
    left_out: int
    stop_reason: str
    reward: float | None = None
    model: str | None = None


class ItemView(msgspec.Struct, frozen=True, kw_only=True):
    """An item as shown to the reviewer. `expected` has the verifier's fields of the task, or None if hidden."""

    sides: list[Side]
    expected: dict[str, Any] | None


def read_item_view(review: Review, *, whole: bool = False) -> ItemView:
    """Return the item as the reviewer of this review sees it. `whole` hides nothing, for users who lead the queue."""
    queue = review.queue
    assert queue is not None
    shows = EVERYTHING if whole else _may_show(review, queue)
    rollouts = find_rollouts(review.arrangement)
    sides = []
    for label, rollout in zip(LABELS, rollouts, strict=False):
        events, left_out = _read_events(rollout)
        sides.append(
            Side(
                label=label,
                events=hide_results(events, shows),
                left_out=left_out,
                stop_reason=rollout.stop_reason,
                reward=rollout.reward if shows.reward else None,
                model=_name_model(rollout) if shows.model else None,
            )
        )
    row = rollouts[0].task.masked_row if rollouts else {}
    expected = {name: value for name, value in row.items() if name != "responses_create_params"}
    return ItemView(sides=sides, expected=expected if shows.expected else None)


def item_view_as_dict(review: Review, shown: ItemView) -> dict[str, Any]:
    """Return the item as JSON-compatible values, with the prompt of the task."""
    sides = [
        {
            **msgspec.structs.asdict(side),
            "events": [{"seq": seq, "event": orjson.loads(encode_event(event))} for seq, event in side.events],
        }
        for side in shown.sides
    ]
    prompt = input_items(review.item.task.masked_row) if review.item else []
    return {"prompt": prompt, "expected": shown.expected, "sides": sides}


def _may_show(review: Review, queue: Queue) -> Visibility:
    """Return what the queue shows and no other queue hides from the same reviewer."""
    shows = {"expected": queue.shows_expected, "reward": queue.shows_reward, "model": queue.shows_model}
    hidden = find_hidden(review) if any(shows.values()) else frozenset()
    return Visibility(**{name: shown and name not in hidden for name, shown in shows.items()})


def find_rollouts(ids: Sequence[int]) -> list[Rollout]:
    """Return the rollouts in the order of the ids, with one query."""
    rows = Rollout.objects.filter(pk__in=ids).select_related("task", "collection__policy_model")
    found = {each.pk: each for each in rows}
    return [found[one] for one in ids if one in found]


def reveal(review: Review) -> list[dict[str, Any]]:
    """Return the results of a submitted review, if its queue shows them.

    Empty if another unanswered item of the reviewer hides them.
    """
    queue: Queue | None = review.queue
    if queue is None or not queue.reveals or review.status != Review.Status.SUBMITTED:
        return []
    if find_hidden(review) & {"reward", "model"} or will_be_reviewed_again(review):
        return []
    return [
        {"label": label, "rollout": each.pk, "reward": each.reward, "model": _name_model(each)}
        for label, each in zip(LABELS, find_rollouts(review.arrangement), strict=False)
    ]


def _name_model(rollout: Rollout) -> str:
    return " ".join(filter(None, [rollout.collection.policy_model.name, rollout.model_version]))


def _read_events(rollout: Rollout) -> tuple[list[tuple[int, TraceUnion]], int]:
    stored = TraceEvent.objects.filter(rollout=rollout, attempt=rollout.attempt).order_by("seq")
    events = [(each.seq, each.event) for each in stored.only("rollout", "attempt", "seq", "payload")[: MAX_EVENTS + 1]]
    if is_captured(event for _, event in events):
        # Only the main path is shown. Its events are numbered by position, because several may come from the same
        # stored event.
        line = list(enumerate(TraceGraph([each.event for each in stored]).main))
        return line[:MAX_EVENTS], max(0, len(line) - MAX_EVENTS)
    if len(events) <= MAX_EVENTS:
        return events, 0
    return events[:MAX_EVENTS], stored.filter(seq__gt=events[MAX_EVENTS - 1][0]).count()
