"""Which rollouts have a text in their traces: by the words that word_index.py keeps."""

from django.db import connection
from django.db.models import Exists, OuterRef, Q

from apps.rollouts.models import RolloutWords, UnindexedRollout
from apps.rollouts.search.filters.search_words import split_words

MAX_WORDS = 20
"""Words of a phrase; parts of what is indexed overlap by so many."""
MANY = 10_000


def find_text(text: str, *, begins: bool = False) -> Q:
    """A condition on rollouts: the words of `text` stand in one of their texts, in this order and next to each other.

    With `begins` the last word may go on. A text without any word is in no rollout. What is passed on to the database's
    search is words alone: no sign of the text can become an operator there.
    """
    words = list(split_words(text))[:MAX_WORDS]
    if not words:
        return Q(pk__in=[])
    if connection.vendor == "sqlite":
        phrase = f'"{" ".join(words)}"{"*" if begins else ""}'
        return Q(pk__in=RolloutWords.objects.filter(document__finds=phrase).values("rollout"))
    phrase = " <-> ".join(f"'{word}'" for word in words) + (":*" if begins else "")
    return Q(Exists(RolloutWords.objects.filter(rollout=OuterRef("pk"), document__finds=phrase)))


def count_unindexed() -> int:
    """How many rollouts ended that no text finds yet; at most MANY + 1, since nobody counts further."""
    return UnindexedRollout.objects.order_by()[: MANY + 1].count()
