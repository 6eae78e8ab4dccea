"""Content of a work page: the shared context, the sides from where they differ, their final answers, and the form."""

from dataclasses import replace
from math import floor
from statistics import median
from typing import Any

from django.db.models import Count, Q
from django.utils import timezone

from apps.accounts.models import User
from apps.dashboard.traces.card_building import show_events
from apps.dashboard.traces.cards import Card, Image, group_lanes
from apps.dashboard.traces.images import find_image, parts_of
from apps.dashboard.traces.side_by_side import SHOWN, Line, compare_steps, find_start
from apps.gym.pairs.verdicts import CHOICES, CONFIDENCE, REASONS
from apps.gym.rubric_criteria import Criterion
from apps.gym.traces.alignment import Step, steps_of
from apps.gym.traces.items import input_items
from apps.reviews.models import Queue, Review
from apps.reviews.queues.blind_items import LABELS, Side, read_item_view
from apps.reviews.queues.waiting_items import read_waiting
from apps.reviews.reviews.drafts import read_draft

CHOICE_KEYS = {"a_much": "A", "a": "a", "equal": "e", "both_bad": "x", "b": "b", "b_much": "B"}
MAX_STEPS = 400
MAX_OPTIONS = 10
"""Longer numeric scales are answered in a number field."""
PACE_SAMPLE = 20
"""The pace of a reviewer is the median time of this many latest reviews."""
_HIDDEN_FACTS = frozenset({"seed", "usage"})
EARLY_LINES = 2
"""Final answers are not repeated if they are among this many first differences."""


def read_judged(review: Review, *, whole: bool = False) -> dict[str, Any]:
    """Return what the reviewer sees.

    `runs` are the trace of a single rollout with a rubric; `common` and `lines` the steps of several rollouts, and
    `last_words` their final answers unless they are among the first lines.
    """
    shown = read_item_view(review, whole=whole)
    labels = list(LABELS[: len(shown.sides)])
    columns = [steps_of(side.events) for side in shown.sides]
    left_out = sum(side.left_out for side in shown.sides) + sum(max(0, len(each) - MAX_STEPS) for each in columns)
    judged = {"shown": shown, "labels": labels, "left_out": left_out}
    if len(columns) == 1:
        return {**judged, "runs": group_lanes(_show_cards(shown.sides[0]))}
    common, lines = compare_steps([each[:MAX_STEPS] for each in columns]) if columns else ([], [])
    return {**judged, "common": common, "lines": lines, "last_words": _last_words(labels, columns, lines)}


def _show_cards(side: Side) -> tuple[Card, ...]:
    """Return the cards of a side. If the model is hidden, events lack seed and usage, so these facts are left out."""
    cards = show_events(event for _, event in side.events).cards
    if side.model is not None:
        return cards
    return tuple(replace(card, facts=tuple(f for f in card.facts if f[0] not in _HIDDEN_FACTS)) for card in cards)


def read_answers(review: Review) -> list[dict[str, Any]]:
    """Return the final answer of each side as the reviewer sees it, truncated, from the first difference on."""
    shown = read_item_view(review)
    columns = [steps_of(side.events) for side in shown.sides]
    return _last_words(list(LABELS[: len(columns)]), columns, [])


def read_prompt_images(review: Review) -> list[Image]:
    """Return the images of the task's prompt."""
    prompt = input_items(review.item.task.masked_row) if review.item else []
    return [image for item in prompt for part in parts_of(item) if (image := find_image(part, 0, ""))]


def read_text(review: Review, label: str, place: int, *, whole: bool = False) -> str | None:
    """Return the full text of a step that the review shows on a side; None for other steps."""
    side = next((each for each in read_item_view(review, whole=whole).sides if each.label == label), None)
    steps = steps_of(side.events) if side is not None else []
    return steps[place].text if place < len(steps) else None


def read_fields(review: Review, errors: dict[str, str]) -> dict[str, Any]:
    """Return the form of a review with its draft, or with the rejected input."""
    queue = review.queue
    assert queue is not None
    draft = read_draft(review.draft)
    scores, ranks = draft.get("scores", {}), draft.get("ranks", [])
    places = range(1, len(review.arrangement) + 1)
    return {
        "choices": [(name, label, CHOICE_KEYS[name], draft.get("choice") == name) for name, label in CHOICES.items()]
        if queue.kind == Queue.Kind.PAIRWISE
        else [],
        "ranks": [
            (place, label, [(each, place < len(ranks) and ranks[place] == each) for each in places])
            for place, label in enumerate(LABELS[: len(review.arrangement)])
        ]
        if queue.kind == Queue.Kind.RANKING
        else [],
        "criteria": [_field(each, scores.get(each["key"]), errors) for each in queue.criteria],
        "reasons": [
            (number, name, label, name in draft.get("reasons", []))
            for number, (name, label) in enumerate(REASONS.items(), start=1)
        ],
        "confidences": [(value, label, draft.get("confidence") == value) for value, label in CONFIDENCE.items()],
        "note": draft.get("note", ""),
        "errors": errors,
    }


def count_work(queue: Queue, user: User) -> dict[str, Any]:
    """Return `count_mine` with the `place` of the open item in the `total`, the items `left`, and the pace.

    `pace` is the usual time of a review and `time_left` that of the remaining ones, in seconds; None without reviews.
    """
    mine = count_mine(queue, user.pk)
    left = sum(each.left for each in read_waiting(user, [queue]))
    times = Review.objects.filter(queue=queue, reviewer=user, is_adjudication=False, seconds__isnull=False).submitted()
    latest = times.order_by("-submitted_at").values_list("seconds", flat=True)[:PACE_SAMPLE]
    seconds = [each for each in latest if each is not None]
    pace = median(seconds) if seconds else None
    total = mine["done"] + max(1, left)
    return {
        **mine,
        "place": mine["done"] + 1,
        "total": total,
        "left": left,
        "pace": pace,
        "time_left": pace and pace * left,
    }


def count_mine(queue: Queue, reviewer_id: int) -> dict[str, int]:
    """Return the user's number of reviews in total and today, with one query."""
    mine = Review.objects.filter(queue=queue, reviewer=reviewer_id, is_adjudication=False)
    done = Q(status=Review.Status.SUBMITTED)
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    found: dict[str, int] = mine.aggregate(
        done=Count("pk", filter=done),
        today=Count("pk", filter=done & Q(submitted_at__gte=today)),
        skipped=Count("pk", filter=Q(status=Review.Status.SKIPPED)),
    )
    return found


def _field(criterion: Criterion, value: Any, errors: dict[str, str]) -> dict[str, Any]:
    """Return a criterion and its answer. `options` are (value, label, keyboard key or "", selected)."""
    options: list[tuple[str, str, str, bool]] = []
    numbers = _scale(criterion)
    if criterion["kind"] == "boolean":
        options = [("true", "yes", "1", value is True), ("false", "no", "2", value is False)]
    elif criterion["kind"] == "category":
        choices = enumerate(criterion["choices"], start=1)
        options = [(each, each, _digit(number), each == value) for number, each in choices]
    elif value is None or value in numbers:
        options = [(str(each), str(each), _digit(each), each == value) for each in numbers]
    key = str(criterion["key"])
    return {
        "key": key,
        "criterion": criterion,
        "value": value,
        "options": options,
        "is_required": criterion.get("required", criterion["kind"] != "text"),
        "error": errors.get(f"scores.{key}", ""),
    }


def _scale(criterion: Criterion) -> range:
    """Return the values of a short numeric scale with whole-number steps. Empty for other criteria."""
    step = criterion.get("step")
    if criterion["kind"] != "numeric" or step is None:
        return range(0)
    low, high = criterion["minimum"], criterion["maximum"]
    if low % 1 or step % 1 or high - low >= MAX_OPTIONS * step:
        return range(0)
    return range(int(low), floor(high) + 1, int(step))


def _digit(number: int) -> str:
    return str(number) if 1 <= number <= 9 else ""


def _last_words(labels: list[str], columns: list[list[Step]], lines: list[Line]) -> list[dict[str, Any]]:
    """Return the final answer of each side, which is its step `place`, if any; truncated like the steps.

    Empty if the first lines have them.
    """
    places = [max((place for place, step in enumerate(steps) if step.kind == "reply"), default=-1) for steps in columns]
    early = {(column, cell.place) for line in lines[:EARLY_LINES] for column, cell in enumerate(line.cells) if cell}
    if all(place < 0 or (column, place) in early for column, place in enumerate(places)):
        return []
    texts = [steps[place].text if place >= 0 else "" for steps, place in zip(columns, places, strict=True)]
    start = find_start([text for text in texts if text])
    end = start + SHOWN
    return [
        {
            "label": label,
            "place": place,
            "text": text[start:end],
            "before": start if text else 0,
            "hidden": max(0, len(text) - end),
            "characters": len(text),
        }
        for label, place, text in zip(labels, places, texts, strict=True)
    ]
