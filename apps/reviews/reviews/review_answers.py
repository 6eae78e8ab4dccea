"""Validate submitted answers against the settings of the queue."""

from collections.abc import Mapping
from typing import Any

import msgspec

from apps.accounts.permissions import Permission, user_may
from apps.gym.pairs.verdicts import (
    CHOICES,
    CONFIDENCE,
    REASONS,
    Verdict,
    dense_ranks,
    find_ranks_problem,
    read_choice,
    read_ranks,
)
from apps.gym.redaction.shortening import cut
from apps.gym.request_refusals import INVALID, Refusal
from apps.gym.rubric_criteria import Criterion, check_scores
from apps.gym.storable import find_unstorable
from apps.policies.redacted_fields import redact_input
from apps.reviews.models import PairVerdict, Queue, Review

MAX_NOTE = 10_000


class AnswerRefused(Refusal):
    """Raised for an invalid answer. `wrong` maps fields to messages. The field of a score is `scores.KEY`."""

    def __init__(self, wrong: dict[str, str]) -> None:
        super().__init__(" ".join(wrong.values()))
        self.wrong = wrong

    @property
    def invalid_values(self) -> list[dict[str, Any]]:
        return [
            {"pointer": f"/{name.replace('.', '/')}", "code": INVALID, "message": message}
            for name, message in self.wrong.items()
        ]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A submitted answer. `choice` and `ranks` refer to the order as shown; `scores` is keyed by criterion."""

    choice: str = ""
    ranks: list[Any] = []
    scores: Mapping[str, Any] = {}
    reasons: list[str] = []
    note: str = ""
    confidence: int | None = None


def take_answer(review: Review, answer: Answer) -> list[Verdict]:
    """Write the answer to the unsaved review and return its verdicts.

    Also records whether the reviewer could see results. Raise AnswerRefused.
    """
    kind, rubric = (review.queue.kind, review.queue.rubric) if review.queue else (Queue.Kind.RUBRIC, review.rubric)
    criteria: list[Criterion] = rubric.criteria if rubric else []
    errors = _common_problems(answer)
    verdicts: list[Verdict] = []
    review.choice, review.ranks, review.scores = "", [], {}
    if kind == Queue.Kind.PAIRWISE:
        if answer.choice in CHOICES:
            review.choice, verdicts = answer.choice, [read_choice(answer.choice, review.arrangement)]
        else:
            errors["choice"] = f"Give a verdict, one of {', '.join(CHOICES)}."
    elif kind == Queue.Kind.RANKING:
        if problem := find_ranks_problem(answer.ranks, len(review.arrangement)):
            errors["ranks"] = problem
        else:
            review.ranks = dense_ranks(answer.ranks)
            verdicts = read_ranks(review.ranks, review.arrangement)
    if criteria:
        review.scores, missing = check_scores(criteria, answer.scores)
        errors.update({f"scores.{key}": text for key, text in missing.items()})
    elif answer.scores:
        errors["scores"] = "This queue has no rubric to score by."
    if errors:
        raise AnswerRefused(errors)
    review.reasons = list(dict.fromkeys(answer.reasons))
    review.note = redact_input(answer.note.strip())
    review.confidence = answer.confidence
    # Results that were visible before a role change still count as seen.
    review.could_see_results |= user_may(review.reviewer, Permission.READ)
    return verdicts


def store_verdicts(review: Review, verdicts: list[Verdict]) -> None:
    """Store the verdicts of a review, replacing earlier ones."""
    PairVerdict.objects.filter(review=review).delete()
    PairVerdict.objects.bulk_create(
        PairVerdict(review=review, low_id=one.low, high_id=one.high, outcome=one.outcome, strength=one.strength)
        for one in verdicts
    )


def _common_problems(answer: Answer) -> dict[str, str]:
    errors = {}
    if unknown := [each for each in answer.reasons if each not in REASONS]:
        errors["reasons"] = f"Unknown reason “{cut(str(unknown[0]), 50)}”. Choose one of: {', '.join(REASONS)}."
    if len(answer.note) > MAX_NOTE or find_unstorable(answer.note) is not None:
        errors["note"] = f"This is a text of at most {MAX_NOTE:,} characters."
    if answer.confidence is not None and answer.confidence not in CONFIDENCE:
        errors["confidence"] = "Confidence is 1, 2 or 3."
    return errors
