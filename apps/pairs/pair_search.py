"""Find the pairs of a set that want a look: by their margin, and what is odd about them."""

from typing import Literal

from django.db.models import F, Q, QuerySet

from apps.pairs.models import PreferencePair

Flag = Literal["long", "against_reward", "same_answer"]

LONG = 2
"""Sides are of unlike length where one has more than so many times the characters of the other."""
_CONDITIONS: dict[Flag, Q] = {
    "long": Q(chosen_length__gt=LONG * F("rejected_length")) | Q(rejected_length__gt=LONG * F("chosen_length")),
    # Only people prefer what has the lower reward: rewards never pair so.
    "against_reward": Q(chosen_reward__lt=F("rejected_reward")),
    "same_answer": Q(same_answer=True),
}
FLAGS: tuple[Flag, ...] = tuple(_CONDITIONS)


def leave_out_close(pairs: QuerySet[PreferencePair], least: float) -> QuerySet[PreferencePair]:
    """Leave out pairs that rewards made by a smaller margin. Pairs that people chose have no margin, and stay."""
    return pairs.filter(Q(margin__gte=least) | Q(margin__isnull=True))


def flag_pairs(pairs: QuerySet[PreferencePair], flag: Flag, *, value: bool = True) -> QuerySet[PreferencePair]:
    """Those that have the flag, or those that do not."""
    having = PreferencePair.objects.filter(_CONDITIONS[flag])
    return pairs.filter(pk__in=having.values("pk")) if value else pairs.exclude(pk__in=having.values("pk"))


def flags_of(pair: PreferencePair) -> list[Flag]:
    shorter, longer = sorted((pair.chosen_length, pair.rejected_length))
    chosen, rejected = pair.chosen_reward, pair.rejected_reward
    found: dict[Flag, bool] = {
        "long": longer > LONG * shorter,
        "against_reward": chosen is not None and rejected is not None and chosen < rejected,
        "same_answer": pair.same_answer,
    }
    return [flag for flag, holds in found.items() if holds]
