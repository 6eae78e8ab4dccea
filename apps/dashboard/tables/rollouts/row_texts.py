"""Texts of the rows that are not columns of Rollout: the extracted and expected answers, the reason for the reward, and
a short task."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import orjson
from django.db.models import Count
from django.db.models.functions import Length

from apps.gym.redaction.shortening import shorten
from apps.gym.tasks.expected_answers import find_expected
from apps.gym.traces.events import Verification
from apps.policies.installation_redactor import fresh_redactor
from apps.reviews.agreement.decisions import read_verdicts
from apps.reviews.models import Review
from apps.reviews.reviews.reward_overrides import read_overrides
from apps.rollouts.last_verifications import read_last_verifications
from apps.rollouts.models import ScanAnswer
from apps.tasks.models import Task

CHARACTERS = 160
LARGEST_ROW = 64 * 1024
"""Larger task rows are not parsed for the table, to keep it fast."""
_SHORTEST_PREFIX = 24


def add_texts(rollouts: Sequence[Any], columns: Collection[str]) -> None:
    """Set `answered`, `expected`, `why`, `asked` and `reviewed` on the rows, for the columns that are shown."""
    reviewed = _reviews([row.pk for row in rollouts]) if "review" in columns else {}
    expected = _expected({row.task_id for row in rollouts}) if "expected" in columns else {}
    rewarded = [row.pk for row in rollouts if row.reward is not None] if {"why", "answer"} & set(columns) else []
    verified = read_last_verifications(rewarded)
    prefix = shared_prefix([row.task.prompt_excerpt for row in rollouts]) if "task" in columns else ""
    for row in rollouts:
        row.reviewed = reviewed.get(row.pk, [])
        row.expected = expected.get(row.task_id, "")
        verification = verified.get(row.pk)
        row.answered = _answer(verification) or row.answer
        row.why = shorten(row.error_message or (verification.explanation if verification else ""), CHARACTERS)
        text = row.task.prompt_excerpt
        row.asked = f"…{text[len(prefix) :]}" if prefix else text


def add_scan_answers(rollouts: Sequence[Any], scans: Collection[int]) -> None:
    """Set `scanned` on the rows: their answers of these scans, in the order of the scans."""
    found: defaultdict[int, list[ScanAnswer]] = defaultdict(list)
    if scans:
        answers = ScanAnswer.objects.filter(scan__in=scans, rollout__in=rollouts).exclude(
            state=ScanAnswer.State.PENDING
        )
        for answer in answers.order_by("scan").defer("citations"):
            found[answer.rollout_id].append(answer)
    for row in rollouts:
        row.scanned = found[row.pk]


def shared_prefix(texts: Sequence[str]) -> str:
    """Return the words that all texts begin with, or an empty text if they are few or the texts are equal."""
    # The first and the last text in order share what all share.
    first, last = min(texts, default=""), max(texts, default="")
    if first == last:
        return ""
    same = next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    prefix = first[: first.rfind(" ", 0, same) + 1]
    return prefix if len(prefix) >= _SHORTEST_PREFIX else ""


def _answer(verification: Verification | None) -> str:
    """Return the answer as the verifier extracted it. `Rollout.answer` is normalised for majority@k."""
    extracted = verification.details.get("extracted_answer") if verification else None
    return "" if extracted is None else shorten(str(extracted), CHARACTERS)


def _reviews(rollouts: Sequence[int]) -> dict[int, list[str]]:
    """Return by rollout what reviewers decided: a new reward, rubric scores, and won comparisons."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for pk, override in read_overrides(rollouts).items():
        found[pk].append(f"reward set to {override.reward:g}")
    scored = Review.objects.filter(rollout__in=rollouts, repeat_of__isnull=True).submitted().exclude(scores={})
    for pk, number in scored.order_by().values_list("rollout").annotate(number=Count("pk")):
        found[pk].append(f"{number} review{'' if number == 1 else 's'}")
    decided, won = Counter[int](), Counter[int]()
    for verdict in read_verdicts(touching=rollouts).values():
        decided.update((verdict.low, verdict.high))
        won.update([verdict.winner] if verdict.winner else [])
    for pk in rollouts:
        if decided[pk]:
            found[pk].append(f"preferred in {won[pk]} of {decided[pk]} comparison{'' if decided[pk] == 1 else 's'}")
    return found


def _expected(tasks: set[int]) -> dict[int, str]:
    rows = Task.objects.filter(pk__in=tasks).annotate(size=Length("row_json")).filter(size__lte=LARGEST_ROW)
    redactor = fresh_redactor()
    return {
        pk: find_expected(orjson.loads(redactor.redact_json(row)[0]), characters=CHARACTERS)
        for pk, row in rows.values_list("pk", "row_json")
    }
