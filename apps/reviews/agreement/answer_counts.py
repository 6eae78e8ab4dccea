"""Counts of the answers in a queue, and how often each model was preferred, in a constant number of queries."""

from collections import Counter
from typing import Any

import msgspec
from django.db.models import Count

from apps.gym.pairs.verdicts import CHOICES
from apps.reviews.agreement.queue_agreement import find_independent_reviews, find_verdicts
from apps.reviews.models import PairVerdict, Queue

MAX_VALUES = 11
"""A numeric criterion with more different scores than this shows only their mean."""
_LOW, _HIGH = PairVerdict.Outcome.LOW, PairVerdict.Outcome.HIGH


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to one question. `counts` has (answer, reviews); `mean` is set for numbers."""

    name: str
    counts: list[tuple[str, int]]
    total: int
    mean: float | None = None


class ModelWins(msgspec.Struct, frozen=True, kw_only=True):
    """How often a model was preferred in comparisons with other models."""

    slug: str
    name: str
    compared: int
    won: int
    lost: int


def read_answers(queue: Queue, *, could_see_results: bool | None = None) -> list[Answers]:
    """Return the counts of verdicts as shown (A or B), and of the scores of each criterion except texts."""
    reviews = find_independent_reviews(queue, could_see_results=could_see_results)
    found = []
    if queue.kind == Queue.Kind.PAIRWISE:
        chosen = dict(reviews.order_by().values_list("choice").annotate(number=Count("pk")))
        if total := sum(chosen.values()):
            counts = [(label, chosen.get(name, 0)) for name, label in CHOICES.items()]
            found.append(Answers(name="Verdict", counts=counts, total=total))
    scores = list(reviews.values_list("scores", flat=True)) if queue.criteria else []
    asked = [each for each in queue.criteria if each["kind"] != "text"]
    return found + [each for criterion in asked if (each := _count_scores(criterion, scores)).total]


def read_wins(queue: Queue, *, could_see_results: bool | None = None) -> list[ModelWins]:
    """Return the models of the queue, highest share of won comparisons first.

    Comparisons of two rollouts of the same model do not count. The result is empty while an open queue hides models.
    """
    if queue.is_open and not queue.shows_model:
        return []
    verdicts = find_verdicts(queue, could_see_results=could_see_results).order_by()
    columns = [f"{side}__collection__policy_model__{name}" for side in ("low", "high") for name in ("slug", "name")]
    compared, won, lost = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for *models, outcome, number in verdicts.values_list(*columns, "outcome").annotate(number=Count("pk")):
        low, high = (models[0], models[1]), (models[2], models[3])
        if low == high:
            continue
        compared.update({low: number, high: number})
        if outcome in (_LOW, _HIGH):
            winner, loser = (low, high) if outcome == _LOW else (high, low)
            won[winner] += number
            lost[loser] += number
    found = [
        ModelWins(slug=model[0], name=model[1], compared=number, won=won[model], lost=lost[model])
        for model, number in compared.items()
    ]
    return sorted(found, key=lambda one: (-one.won / one.compared, one.slug))


def _count_scores(criterion: dict[str, Any], scores: list[dict[str, Any]]) -> Answers:
    values = [each[criterion["key"]] for each in scores if criterion["key"] in each]
    if criterion["kind"] == "numeric":
        counted = sorted(Counter(map(float, values)).items())
        counts = [(f"{value:g}", number) for value, number in counted] if len(counted) <= MAX_VALUES else []
        mean = sum(map(float, values)) / len(values) if values else None
        return Answers(name=criterion["label"], counts=counts, total=len(values), mean=mean)
    options = (
        {True: "yes", False: "no"} if criterion["kind"] == "boolean" else {each: each for each in criterion["choices"]}
    )
    number = Counter(values)
    return Answers(
        name=criterion["label"],
        counts=[(label, number[value]) for value, label in options.items()],
        total=len(values),
    )
