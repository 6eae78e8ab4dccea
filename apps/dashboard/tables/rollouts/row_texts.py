"""Texts of the rows that are not columns of Rollout: expected answer, the reason of the reward, and a short task."""

from collections.abc import Collection, Sequence
from typing import Any

import orjson
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Length

from apps.gym.redaction.shortening import shorten
from apps.gym.tasks.expected_answers import find_expected
from apps.rollouts.models import Rollout, TraceEvent
from apps.tasks.models import Task

CHARACTERS = 160
LARGEST_ROW = 64 * 1024
"""Larger task rows are not parsed for the table, to keep it fast."""
_SHORTEST_PREFIX = 24


def add_texts(rollouts: Sequence[Any], columns: Collection[str]) -> None:
    """Set `expected`, `why` and `asked` on the rows, for the columns that are shown."""
    expected = _expected({row.task_id for row in rollouts}) if "expected" in columns else {}
    explained = _explanations([row.pk for row in rollouts if row.reward is not None]) if "why" in columns else {}
    prefix = shared_prefix([row.task.prompt_excerpt for row in rollouts]) if "task" in columns else ""
    for row in rollouts:
        row.expected = expected.get(row.task_id, "")
        row.why = shorten(row.error_message or explained.get(row.pk, ""), CHARACTERS)
        text = row.task.prompt_excerpt
        row.asked = f"…{text[len(prefix) :]}" if prefix else text


def shared_prefix(texts: Sequence[str]) -> str:
    """Return the words that all texts begin with, or an empty text if they are few or the texts are equal."""
    # The first and the last text in order share what all share.
    first, last = min(texts, default=""), max(texts, default="")
    if first == last:
        return ""
    same = next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    prefix = first[: first.rfind(" ", 0, same) + 1]
    return prefix if len(prefix) >= _SHORTEST_PREFIX else ""


def _expected(tasks: set[int]) -> dict[int, str]:
    rows = Task.objects.filter(pk__in=tasks).annotate(size=Length("row_json")).filter(size__lte=LARGEST_ROW)
    return {
        pk: find_expected(orjson.loads(row), characters=CHARACTERS) for pk, row in rows.values_list("pk", "row_json")
    }


def _explanations(rollouts: Sequence[int]) -> dict[int, str]:
    """Return the explanation of the newest verification by rollout."""
    # Read from the end of the attempt, where the verification is.
    verified = TraceEvent.objects.filter(rollout=OuterRef("pk"), attempt=OuterRef("attempt"), kind="verification")
    payload = Subquery(verified.order_by("-seq").values("payload")[:1])
    rows = Rollout.objects.filter(pk__in=rollouts).annotate(verified=payload).order_by()
    return {
        pk: str(orjson.loads(payload).get("explanation", ""))
        for pk, payload in rows.values_list("pk", "verified")
        if payload
    }
