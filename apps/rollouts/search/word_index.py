"""Index the words of rollouts that ended, in the background: their ends only leave a row that says so.

Redacted text alone is read, since no other is stored. Of each rollout the first SEARCH_WORDS words are kept.
"""

import itertools
import logging
from collections.abc import Collection as Some
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from apps.accounts.job_retries import when_database_answers
from apps.accounts.keyset_reading import read_by_key
from apps.accounts.outages import is_transient
from apps.gym import process_exit
from apps.gym.traces.event_texts import texts_of
from apps.gym.traces.events import decode_event
from apps.rollouts.models import Rollout, RolloutWords, TraceEvent, UnindexedRollout
from apps.rollouts.search.filters.search_words import BREAK, split_words
from apps.rollouts.search.filters.text_search import MAX_WORDS

logger = logging.getLogger(__name__)

CHUNK = 50
"""Rollouts that a worker takes at once."""
PART = 4_000
"""Words of a part: PostgreSQL keeps 256 places of a word in one document, and 16,383 places in all."""
PIECE = 256 * 1024
"""Characters of a text that are split into words at once."""
MAX_TRIES = 3
QUIET = timedelta(minutes=5)
"""What a worker took and did not bring back for so long, another takes."""


class Words(NamedTuple):
    """Of one attempt. `texts` are lists of words: no phrase reaches from one into the next."""

    texts: list[list[str]]
    is_cut: bool


def mark_unindexed(rollouts: QuerySet[Rollout] | Some[int]) -> None:
    """Say that these have ended, or ended anew; in the transaction that ends them. One statement, whatever their
    number. Such as never began have no words."""
    if not isinstance(rollouts, QuerySet) and not rollouts:
        return
    chosen = rollouts if isinstance(rollouts, QuerySet) else Rollout.objects.filter(pk__in=rollouts)
    rows = chosen.filter(attempt__gt=0, finished_at__isnull=False).order_by().values_list("pk", "attempt")
    query, parameters = rows.query.sql_with_params()
    again = "ON CONFLICT (rollout_id) DO UPDATE SET attempt = excluded.attempt, taken_at = NULL, tries = 0"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO rollouts_unindexedrollout (rollout_id, attempt, tries) {_with_tries(query)} {again}",
            parameters,
        )


def _with_tries(query: str) -> str:
    # SQLite wants a WHERE between a SELECT and ON CONFLICT; without one it takes ON for that of a join.
    return f"SELECT found.*, 0 FROM ({query}) found WHERE true"  # noqa: S608 - the query that Django wrote


def index_next_rollouts() -> bool:
    """Background job: index a chunk of what waits; says whether there was any."""
    taken_at = timezone.now()
    taken = _take(taken_at)
    if not taken:
        return False
    # Read without a lock: what is written below is only what still waits as it was taken.
    try:
        _store(taken, _read(taken), taken_at)
    except Exception as problem:
        if isinstance(problem, process_exit.Leaving) or is_transient(problem):
            when_database_answers(lambda: _give_back(taken_at))
        raise
    return True


def _read(taken: dict[int, int]) -> dict[int, Words]:
    found = {}
    for rollout_id, attempt in taken.items():
        process_exit.check()
        try:
            found[rollout_id] = read_words(rollout_id, attempt)
        except Exception as problem:
            if is_transient(problem):
                raise
            # It is tried again, and counted as not indexed in the end: one trace must not hold up the others.
            logger.exception("the words of rollout %s could not be read", rollout_id)
    return found


def _give_back(taken_at: datetime) -> None:
    """Return what was taken to the queue, as if it had not been tried."""
    UnindexedRollout.objects.filter(taken_at=taken_at, tries__gt=0).update(taken_at=None, tries=F("tries") - 1)


def index_all() -> Iterator[int]:
    """Index everything that waits here and now; gives how many were done after each chunk."""
    UnindexedRollout.objects.filter(tries__gte=MAX_TRIES).update(tries=0, taken_at=None)
    while True:
        before = UnindexedRollout.objects.count()
        if not index_next_rollouts():
            return
        yield max(0, before - UnindexedRollout.objects.count())


def _take(now: datetime) -> dict[int, int]:
    free = Q(taken_at__isnull=True) | Q(taken_at__lt=now - QUIET)
    waiting = UnindexedRollout.objects.filter(free, tries__lt=MAX_TRIES)
    with transaction.atomic():
        locked = waiting.order_by("tries", "taken_at", "pk").select_for_update(skip_locked=_skips())
        taken = dict(locked.values_list("pk", "attempt")[:CHUNK])
        UnindexedRollout.objects.filter(pk__in=taken).update(taken_at=now, tries=F("tries") + 1)
    return taken


def _skips() -> bool:
    return connection.features.has_select_for_update_skip_locked


def read_words(rollout_id: int, attempt: int) -> Words:
    """Those of this attempt, up to the bound."""
    left = settings.SEARCH_WORDS
    texts: list[list[str]] = []
    events = TraceEvent.objects.filter(rollout=rollout_id, attempt=attempt).values_list("seq", "payload")
    for _, payload in read_by_key(events, by="seq", size=20):
        for text in _texts(payload):
            if left <= 0:
                return Words(texts, is_cut=True)
            words: list[str] = []
            for word in itertools.chain.from_iterable(map(split_words, _pieces(text))):
                if left <= 0:
                    texts.append(words)
                    return Words(texts, is_cut=True)
                words.append(word)
                left -= 1
            if words:
                texts.append(words)
    return Words(texts, is_cut=False)


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that end at a space, so that of a large one no more is copied than is indexed."""
    start = 0
    while len(text) - start > PIECE:
        end = text.find(" ", start + PIECE)
        if end < 0:
            break
        yield text[start:end]
        start = end
    yield text[start:]


def _texts(payload: str) -> Iterator[str]:
    try:
        event = decode_event(payload)
    except (msgspec.DecodeError, msgspec.ValidationError):
        yield payload  # of a kind that this version does not know: as it is stored
        return
    yield from texts_of(event)


def _store(taken: dict[int, int], found: dict[int, Words], taken_at: datetime) -> None:
    """Replace what is kept of each that still waits as it was taken: one that ended anew meanwhile waits anew."""
    with transaction.atomic():
        waiting = UnindexedRollout.objects.filter(pk__in=found, taken_at=taken_at).select_for_update()
        still = list(waiting.values_list("pk", flat=True))
        RolloutWords.objects.filter(rollout__in=still).delete()
        RolloutWords.objects.bulk_create(
            [row for pk in still for row in _parts(pk, taken[pk], found[pk])], batch_size=CHUNK
        )
        UnindexedRollout.objects.filter(pk__in=still).delete()


def _parts(rollout_id: int, attempt: int, words: Words) -> Iterator[RolloutWords]:
    placed = list(_place(words.texts))
    starts = range(0, max(1, len(placed) - MAX_WORDS), PART - MAX_WORDS)
    for part, start in enumerate(starts):
        piece = placed[start : start + PART]
        if piece:
            is_last = start + PART >= len(placed)
            yield RolloutWords(
                rollout_id=rollout_id,
                part=part,
                attempt=attempt,
                document=_document(piece),
                is_cut=words.is_cut and is_last,
            )


def _place(texts: Sequence[Sequence[str]]) -> Iterator[str]:
    for place, text in enumerate(texts):
        if place:
            yield BREAK
        yield from text


def _document(words: Sequence[str]) -> str:
    if connection.vendor != "postgresql":
        return " ".join(words)
    return " ".join(f"'{word}':{place}" for place, word in enumerate(words, 1) if word != BREAK)
