"""Count the rollouts of a scan, and estimate its cost from the transcripts of a sample."""

from typing import NamedTuple

from apps.gym.judging.transcript_questions import Question, read_transcript
from apps.gym.request_refusals import Refusal
from apps.gym.traces.items import text_of
from apps.policies.installation_redactor import fresh_redactor
from apps.rollouts.models import FAILED_WORD, Collection, Rollout, RolloutQuerySet
from apps.rollouts.scans.scan_spec import ScanSpec
from apps.rollouts.search.filters.filter_grammar import FilterRefused
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.rollouts.search.filters.filter_sql import apply_filter
from apps.rollouts.search.filters.query_time_limit import limit_query_time

MAX_ROLLOUTS = 100_000
SAMPLED = 20
"""Number of rollouts whose transcripts are measured, spread evenly over all."""
CHARACTERS_PER_TOKEN = 4
ANSWER_TOKENS = 200
"""Assumed tokens of an answer with its reason and citations."""


class ScanRefused(Refusal):
    """Raised if a scan is not possible. `argument` is the field to change."""


class ScanEstimate(NamedTuple):
    """`sampled` is the number of measured transcripts."""

    rollouts: int
    sampled: int
    input_tokens: int
    output_tokens: int
    cost: float


def estimate_scan(spec: ScanSpec) -> ScanEstimate:
    """Return rollouts, tokens and cost of a scan. Raise ScanRefused for an invalid one, and FilterTooSlow."""
    check_answers(spec)
    ids = find_rollouts(spec.filter)
    sample = Rollout.objects.in_bulk(ids[:: max(1, len(ids) // SAMPLED)][:SAMPLED])
    question = Question(text=spec.question, kind=spec.kind, labels=spec.labels)
    characters = 0
    for rollout in sample.values():
        prompt = question.compose(read_events(rollout), mark="00000000", limit=spec.max_characters)
        characters += sum(len(text_of(item)) for item in prompt)
    tokens = round(characters / CHARACTERS_PER_TOKEN / len(sample) * len(ids)) if sample else 0
    answers = ANSWER_TOKENS * len(ids)
    cost = spec.judge_model.prices.cost({"input_tokens": tokens, "output_tokens": answers})
    return ScanEstimate(len(ids), len(sample), tokens, answers, cost)


def check_answers(spec: ScanSpec) -> None:
    """Raise ScanRefused if the labels do not fit the kind of answer."""
    if spec.kind != "label":
        if spec.labels:
            raise ScanRefused(
                "Labels are used only if “Answer” is “a label”. Remove the labels, or choose “a label”.", "labels"
            )
        return
    names = [label.strip().lower() for label in spec.labels]
    if len(names) < 2 or len(set(names)) < len(names) or "" in names:
        raise ScanRefused("Give two or more different labels.", "labels")
    if FAILED_WORD in names:
        raise ScanRefused(
            "“error” cannot be a label: the filter scan:NUMBER=error finds rollouts without an answer.", "labels"
        )


def find_rollouts(text: str) -> list[int]:
    """Return the ids of the finished rollouts that match a filter, in order. Raise ScanRefused and FilterTooSlow."""
    try:
        parsed = parse_filter(text)
    except FilterRefused as refused:
        raise ScanRefused(f"At character {refused.start + 1}: {refused}", "filter") from None
    with limit_query_time(parsed):
        ids = list(
            apply_filter(finished_rollouts(), parsed).order_by("pk").values_list("pk", flat=True)[: MAX_ROLLOUTS + 1]
        )
    if len(ids) > MAX_ROLLOUTS:
        raise ScanRefused(f"A scan has at most {MAX_ROLLOUTS:,} rollouts. Narrow the filter.", "filter")
    return ids


def finished_rollouts() -> RolloutQuerySet:
    ended = Rollout.objects.filter(status__in=[Rollout.Status.COMPLETED, Rollout.Status.FAILED])
    return ended.filter(collection__in=Collection.objects.present())


def read_events(rollout: Rollout) -> dict[int, str]:
    """Return the text of each event on the main path of the latest attempt, by number."""
    graph, redactor = rollout.graph(), fresh_redactor()
    events = read_transcript(graph.numbered_line(graph.main_leaf))
    # Redact again: patterns may have been added since the trace was stored.
    return {number: redactor.redact_text(text.replace("\0", "\ufffd"))[0] for number, text in events.items()}
