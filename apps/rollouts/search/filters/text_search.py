"""Find rollouts by text in their traces, using the full-text index (word_index.py)."""

from django.db import connection
from django.db.models import Exists, OuterRef, Q

from apps.rollouts.models import RolloutWords, UnindexedRollout
from apps.rollouts.search.word_splitting import split_words

MAX_WORDS = 20
"""Maximum words of a phrase. Index parts overlap by this number of words."""
MANY = 10_000


def find_text(text: str, *, begins: bool = False) -> Q:
    """Return a condition on rollouts that have the words of `text` next to each other, in order, in one text.

    With `begins`, the last word is a prefix. Text without words matches nothing. Only words are passed to the search of
    the database, so no character acts as an operator.
    """
    words = split_words(text)[:MAX_WORDS]
    if not words:
        return Q(pk__in=[])
    lookup = "document__finds_start" if begins else "document__finds"
    found = RolloutWords.objects.filter(**{lookup: " ".join(words)})
    if connection.vendor == "sqlite":
        return Q(pk__in=found.values("rollout"))
    return Q(Exists(found.filter(rollout=OuterRef("pk"))))


def count_unindexed() -> int:
    """Return the number of finished rollouts that are not indexed yet, at most MANY + 1."""
    return UnindexedRollout.objects.order_by()[: MANY + 1].count()
