"""Texts of the rows that are not columns of Rollout: expected answer, the reason of the reward, and a short task."""

from collections.abc import Collection, Sequence
from typing import Any

import orjson
from django.db.models.functions import Length

from apps.gym.redaction.shortening import shorten
from apps.gym.tasks.expected_answers import find_expected
from apps.rollouts.last_verifications import read_last_verifications
from apps.tasks.models import Task

CHARACTERS = 160
LARGEST_ROW = 64 * 1024
"""Larger task rows are not parsed for the table, to keep it fast."""
_SHORTEST_PREFIX = 24


def add_texts(rollouts: Sequence[Any], columns: Collection[str]) -> None:
    """Set `expected`, `why` and `asked` on the rows, for the columns that are shown."""
    expected = _expected({row.task_id for row in rollouts}) if "expected" in columns else {}
    rewarded = [row.pk for row in rollouts if row.reward is not None] if "why" in columns else []
    verified = read_last_verifications(rewarded)
    prefix = shared_prefix([row.task.prompt_excerpt for row in rollouts]) if "task" in columns else ""
    for row in rollouts:
        row.expected = expected.get(row.task_id, "")
        explanation = verified[row.pk].explanation if row.pk in verified else ""
        row.why = shorten(row.error_message or explanation, CHARACTERS)
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
