"""Claim rows that are sent to another server, and store the result of an attempt.

A claim counts the attempt and moves `next_attempt_at` to the end of its lease. If the worker dies, another one claims
the row after that. Only the latest claim may store a result.
"""

import logging
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db.models import F, QuerySet
from django.utils import timezone

from apps.gym.redaction.shortening import cut_clean
from apps.gym.storable import clean_line
from apps.tracking.models import Sent

logger = logging.getLogger(__name__)

LEASE = timedelta(minutes=5)
FIRST_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(minutes=15)
GIVE_UP_AFTER = timedelta(hours=24)

Row = TypeVar("Row", bound=Sent)


def claim_due(rows: QuerySet[Row], *, most: int, lease: timedelta = LEASE) -> list[Row]:
    """Claim rows whose next attempt is due, and return them."""
    now, claimed = timezone.now(), []
    for row in rows.filter(next_attempt_at__lte=now).order_by("next_attempt_at", "pk")[:most]:
        seen = rows.filter(pk=row.pk, attempts=row.attempts, next_attempt_at=row.next_attempt_at)
        if seen.update(attempts=F("attempts") + 1, next_attempt_at=now + lease):
            row.attempts += 1
            claimed.append(row)
    return claimed


def store_success(rows: QuerySet[Row], row: Row, changes: Mapping[str, Any]) -> bool:
    """Store the result of an attempt. Return False if another worker has claimed the row since."""
    fresh = {"error": "", "failing_since": None, **changes}
    return bool(rows.filter(pk=row.pk, attempts=row.attempts).update(**fresh))


def store_failure(rows: QuerySet[Row], row: Row, message: str, *, is_final: bool, failed: Mapping[str, Any]) -> None:
    """Store the error and the time of the next attempt. After a final error, or GIVE_UP_AFTER, store `failed`."""
    now = timezone.now()
    since = row.failing_since or now
    changes: dict[str, Any] = {"error": clean_line(cut_clean(message, 500), 500), "failing_since": since}
    if is_final or now - since >= GIVE_UP_AFTER:
        changes |= failed
    else:
        changes["next_attempt_at"] = now + _wait(now, since)
    logger.warning("%s failed, attempt %d: %s", row, row.attempts, changes["error"])
    rows.filter(pk=row.pk, attempts=row.attempts).update(**changes)


def _wait(now: datetime, since: datetime) -> timedelta:
    """Return the time until the next attempt: about the time since the first failure, so that the waits double."""
    return min(max(now - since, FIRST_WAIT), LONGEST_WAIT) * random.uniform(0.8, 1.2)
