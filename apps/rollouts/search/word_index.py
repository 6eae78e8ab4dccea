"""Build the full-text index and group failures in the background. Finishing a rollout only queues it.

Only redacted text is indexed, because traces are stored redacted. The first SEARCH_WORDS words of each rollout are
indexed.
"""

import contextlib
import itertools
import logging
from collections.abc import Collection as Some
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import zstandard
from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from apps.accounts.job_declarations import background_job
from apps.accounts.job_retries import retry_until_available
from apps.accounts.keyset_reading import read_by_key
from apps.accounts.outages import is_transient
from apps.gym import process_exit
from apps.rollouts.failures.cause_index import Cause, find_causes, store_causes
from apps.rollouts.models import Rollout, TraceEvent, UnindexedRollout
from apps.rollouts.row_statements import execute_with_rows
from apps.rollouts.search.filters.text_search import MAX_WORDS
from apps.rollouts.search.trace_words import Words, read_words
from apps.rollouts.search.word_splitting import BREAK
from apps.rollouts.sql_arrays import in_limited, select_pairs
from apps.rollouts.trace_payloads import Stored, unpack_each, unpack_few

logger = logging.getLogger(__name__)

CHUNK = 250
"""Rollouts claimed at a time."""
PART = 4_000
"""Words per index part.

PostgreSQL keeps at most 256 positions of a word, and 16,383 positions in total, per document.
"""
LARGE = 256 * 1024
"""Maximum bytes of compressed traces that are read together. Larger traces are read a few events at a time."""
MAX_TRIES = 3
QUIET = timedelta(minutes=5)
"""Claims older than this are taken over by another worker."""


# Only these constants are formatted into SQL, never values.
_AMONG = "IN (SELECT value FROM json_each(%s))"
_SELECT_WAITING = f"""
    SELECT rollout_id FROM rollouts_unindexedrollout
    WHERE (taken_at IS NULL OR taken_at < %s) AND tries < {MAX_TRIES}
    ORDER BY tries, taken_at, rollout_id LIMIT {CHUNK}
"""  # noqa: S608
_CLAIM = """
    UPDATE rollouts_unindexedrollout SET taken_at = %s, tries = tries + 1 WHERE {selected}
    RETURNING rollout_id, attempt
"""
_SIZES = """
    SELECT rollout_id, SUM(LENGTH(payload)) FROM rollouts_traceevent WHERE rollout_id {rollouts} GROUP BY rollout_id
"""
_EVENTS = """
    SELECT rollout_id, attempt, payload FROM rollouts_traceevent
    WHERE rollout_id {rollouts} AND kind <> 'session' ORDER BY rollout_id, attempt, seq
"""
"""Session events have no text."""
_DONE = "DELETE FROM rollouts_unindexedrollout WHERE taken_at = %s AND rollout_id {rollouts} RETURNING rollout_id"
_DELETE_WORDS = "DELETE FROM rollouts_rolloutwords WHERE rollout_id {rollouts}"
_ADD = "INSERT INTO rollouts_rolloutwords (rollout_id, part, attempt, is_cut, document)"
_SQLITE_ADD = f"{_ADD} VALUES {{rows}}"
# Separators are deleted from the index; the positions of later words are kept.
_POSTGRES_ADD = f"""
    {_ADD} SELECT rollout_id, part, attempt, is_cut, ts_delete(to_tsvector('simple', document), '{BREAK}')
    FROM jsonb_to_recordset(%s::jsonb)
        AS v(rollout_id bigint, part int2, attempt int2, is_cut boolean, document text)
"""  # noqa: S608


class Part(NamedTuple):
    """A row of RolloutWords."""

    rollout_id: int
    part: int
    attempt: int
    is_cut: bool
    document: str


def mark_unindexed(rollouts: QuerySet[Rollout] | Some[int]) -> None:
    """Queue finished rollouts for indexing, in the transaction that ends them.

    Rollouts that never started have no words and are skipped.
    """
    if not isinstance(rollouts, QuerySet) and not rollouts:
        return
    chosen = rollouts if isinstance(rollouts, QuerySet) else Rollout.objects.filter(pk__in=rollouts)
    rows = chosen.filter(attempt__gt=0, finished_at__isnull=False).order_by().values_list("pk", "attempt")
    _queue(*rows.query.sql_with_params())


def mark_attempts_unindexed(attempts: Some[tuple[int, int]]) -> None:
    """Queue (rollout id, attempt) that have just ended, without reading their rows."""
    if attempts:
        _queue(*select_pairs(attempts))


def _queue(query: str, parameters: Sequence[Any]) -> None:
    again = "ON CONFLICT (rollout_id) DO UPDATE SET attempt = excluded.attempt, taken_at = NULL, tries = 0"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO rollouts_unindexedrollout (rollout_id, attempt, tries) {_with_tries(query)} {again}",
            parameters,
        )


def _with_tries(query: str) -> str:
    # SQLite needs a WHERE between SELECT and ON CONFLICT, or it parses ON as a join condition.
    return f"SELECT found.*, 0 FROM ({query}) found WHERE true"  # noqa: S608 - the query that Django wrote


@background_job(thread="words", waiting=lambda: UnindexedRollout.objects.filter(tries__lt=MAX_TRIES))
def index_next_rollouts() -> bool:
    """Background job: index a chunk of queued rollouts. Return True if there were any."""
    taken_at = timezone.now()
    taken = _claim(taken_at)
    if not taken:
        return False
    # Read without a lock: the write below only affects rows whose claim is unchanged.
    try:
        for group in _group(taken):
            _store(_read(group), _find_causes(group), taken_at)
    except Exception as problem:
        if isinstance(problem, process_exit.Leaving) or is_transient(problem):
            retry_until_available(lambda: _requeue(taken_at))
        raise
    return True


def _requeue(taken_at: datetime) -> None:
    """Requeue claimed rollouts without counting a try."""
    UnindexedRollout.objects.filter(taken_at=taken_at, tries__gt=0).update(taken_at=None, tries=F("tries") - 1)


def index_all() -> Iterator[int]:
    """Index all queued rollouts in this process. Yield the number of rollouts done after each chunk."""
    UnindexedRollout.objects.filter(tries__gte=MAX_TRIES).update(tries=0, taken_at=None)
    while True:
        before = UnindexedRollout.objects.count()
        if not index_next_rollouts():
            return
        yield max(0, before - UnindexedRollout.objects.count())


def _claim(now: datetime) -> dict[int, int]:
    """Claim the next rollouts. Return their attempts by rollout id."""
    lock = "FOR UPDATE SKIP LOCKED" if connection.features.has_select_for_update_skip_locked else ""
    given = [connection.ops.adapt_datetimefield_value(at) for at in (now, now - QUIET)]
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM.format(selected=in_limited("rollout_id", _SELECT_WAITING + lock)), given)
        return dict(sorted(cursor.fetchall()))


def _group(taken: dict[int, int]) -> Iterator[dict[int, int]]:
    """Yield groups of attempts with small traces. Each large trace is a group of its own."""
    sizes = dict(_run(_SIZES, taken))
    group: dict[int, int] = {}
    total = 0
    for pk, attempt in taken.items():
        size = sizes.get(pk, 0)
        if group and total + size > LARGE:
            yield group
            group, total = {}, 0
        group[pk] = attempt
        total += size
    yield group


def _read(group: dict[int, int]) -> dict[int, list[Part]]:
    """Return the words of each attempt, up to the limit. Unreadable attempts are left out."""
    payloads: dict[int, Iterable[str]]
    if len(group) == 1:
        payloads = {pk: _pages(pk, attempt) for pk, attempt in group.items()}
    else:
        read: dict[int, list[Stored]] = {pk: [] for pk in group}
        for pk, attempt, payload in _run(_EVENTS, group):
            if attempt == group[pk]:
                read[pk].append(payload)
        payloads = _decompress(read)
    found = {}
    for pk, attempt in group.items():
        process_exit.check()
        try:
            found[pk] = list(_parts(pk, attempt, read_words(payloads[pk])))
        except Exception as problem:
            if is_transient(problem):
                raise
            # Retried up to MAX_TRIES times, then left unindexed, so that one trace does not block the others.
            logger.exception("the words of rollout %s could not be read", pk)
    return found


def _find_causes(group: dict[int, int]) -> list[Cause]:
    try:
        return find_causes(group)
    except Exception as problem:
        if is_transient(problem):
            raise
        # An unreadable trace must not keep the words of the others from being stored.
        logger.exception("the causes of rollouts %s could not be read", sorted(group))
        return []


def _decompress(read: dict[int, list[Stored]]) -> dict[int, Iterable[str]]:
    """Decompress payloads by rollout id: all at once, or lazily if they are large or one is invalid."""
    with contextlib.suppress(zstandard.ZstdError, UnicodeDecodeError):
        if (texts := unpack_few(list(itertools.chain.from_iterable(read.values())))) is not None:
            left = iter(texts)
            return {pk: list(itertools.islice(left, len(stored))) for pk, stored in read.items()}
    return {pk: unpack_each(stored) for pk, stored in read.items()}


def _pages(rollout_id: int, attempt: int) -> Iterator[str]:
    events = TraceEvent.objects.filter(rollout=rollout_id, attempt=attempt).values_list("seq", "payload")
    return (payload for _, payload in read_by_key(events, by="seq", size=4))


def _store(found: dict[int, list[Part]], causes: list[Cause], taken_at: datetime) -> None:
    """Replace the words and causes of rollouts whose claim is unchanged.

    A rollout that has finished again since then stays in the queue.
    """
    with transaction.atomic():
        still = [pk for (pk,) in _run(_DONE, found, connection.ops.adapt_datetimefield_value(taken_at))]
        _run(_DELETE_WORDS, still)
        parts = [part for pk in still for part in found[pk]]
        if connection.vendor == "sqlite":
            execute_with_rows(_SQLITE_ADD, parts)
        else:
            with connection.cursor() as cursor:
                cursor.execute(_POSTGRES_ADD, [msgspec.json.encode([part._asdict() for part in parts]).decode()])
        store_causes(still, causes)


def _parts(rollout_id: int, attempt: int, found: Words) -> Iterator[Part]:
    words = found.words
    for part, start in enumerate(range(0, max(1, len(words) - MAX_WORDS), PART - MAX_WORDS)):
        if words:
            document = " ".join(words[start : start + PART])
            yield Part(rollout_id, part, attempt, found.is_cut and start + PART >= len(words), document)


def _run(statement: str, rollouts: Some[int], *given: str | None) -> list[tuple[Any, ...]]:
    """Run a statement on these rollouts. Their ids are a single parameter, because Django is slow with thousands."""
    one_of, ids = ("= ANY(%s)", list(rollouts)) if connection.vendor == "postgresql" else (_AMONG, str(list(rollouts)))
    with connection.cursor() as cursor:
        cursor.execute(statement.format(rollouts=one_of), [*given, ids])
        return list(cursor.fetchall()) if cursor.description else []
