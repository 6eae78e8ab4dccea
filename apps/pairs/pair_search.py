"""Filter the pairs of a set by margin and by flag."""

from typing import Literal

from django.db.models import Count, F, Q, QuerySet

from apps.pairs.models import PreferencePair

Flag = Literal["long", "against_reward", "same_answer"]

LONG = 2
"""Two sides differ in length if one has more than this many times the characters of the other."""
_CONDITIONS: dict[Flag, Q] = {
    "long": Q(chosen_length__gt=LONG * F("rejected_length")) | Q(rejected_length__gt=LONG * F("chosen_length")),
    # Only verdicts can prefer the lower reward; rewards never form such pairs.
    "against_reward": Q(chosen_reward__lt=F("rejected_reward")),
    "same_answer": Q(same_answer=True),
}
FLAGS: tuple[Flag, ...] = tuple(_CONDITIONS)


def with_minimum_margin(pairs: QuerySet[PreferencePair], least: float) -> QuerySet[PreferencePair]:
    """Leave out pairs with a margin below `least`. Pairs by verdict have no margin and are kept."""
    return pairs.filter(Q(margin__gte=least) | Q(margin__isnull=True))


def flag_pairs(pairs: QuerySet[PreferencePair], flag: Flag, *, value: bool = True) -> QuerySet[PreferencePair]:
    """Return the pairs that have the flag, or with `value=False` the pairs without it."""
    having = PreferencePair.objects.filter(_CONDITIONS[flag])
    return pairs.filter(pk__in=having.values("pk")) if value else pairs.exclude(pk__in=having.values("pk"))


def count_flags(pairs: QuerySet[PreferencePair]) -> dict[Flag, int]:
    """Return the number of pairs with each flag."""
    counts = pairs.aggregate(**{f"with_{flag}": Count("pk", filter=_CONDITIONS[flag]) for flag in FLAGS})
    return {flag: counts[f"with_{flag}"] for flag in FLAGS}


def flags_of(pair: PreferencePair) -> list[Flag]:
    shorter, longer = sorted((pair.chosen_length, pair.rejected_length))
    chosen, rejected = pair.chosen_reward, pair.rejected_reward
    found: dict[Flag, bool] = {
        "long": longer > LONG * shorter,
        "against_reward": chosen is not None and rejected is not None and chosen < rejected,
        "same_answer": pair.same_answer,
    }
    return [flag for flag, holds in found.items() if holds]
