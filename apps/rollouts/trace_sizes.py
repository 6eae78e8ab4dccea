"""Measure the stored traces of rollouts, and their words in the search index."""

from typing import Any, NamedTuple

from django.db import connection
from django.db.models import BigIntegerField, Count, F, Func, Sum
from django.db.models.functions import Length

from apps.rollouts.models import RolloutWords, TraceEvent
from apps.rollouts.trace_payloads import STORED

_SIZE_OF_WORDS = {"sqlite": "LENGTH", "postgresql": "pg_column_size"}


class TraceSize(NamedTuple):
    """`bytes` has payloads, tokens and indexed words, without the overhead of rows and indexes."""

    events: int
    bytes: int


def measure_traces(rollouts: Any) -> TraceSize:
    """Return the size of the traces of these rollouts: a queryset, or ids."""
    events = TraceEvent.objects.filter(rollout__in=rollouts).aggregate(
        count=Count("seq"), payloads=Sum(Length(STORED), default=0), tokens=Sum(Length(F("tokens")), default=0)
    )
    size = Func(F("document"), function=_SIZE_OF_WORDS[connection.vendor], output_field=BigIntegerField())
    words = RolloutWords.objects.filter(rollout__in=rollouts).aggregate(bytes=Sum(size, default=0))
    return TraceSize(events["count"], events["payloads"] + events["tokens"] + words["bytes"])
