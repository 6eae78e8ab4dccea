"""The API answers as recorded in `recorded/answers.json`. After a change that is meant: python -m tests.api.recorded"""

import hashlib
import json
import os
import sys
from importlib import import_module
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from apps.accounts.idempotent_requests import KeyReused, StillUnderWay
from apps.gym.request_refusals import Refusal
from apps.reviews.queues import side_order
from tests import factories
from tests.api import rows as more_rows
from tests.api.recorded.recording import record_answers, render
from tests.api.recorded.refusals import REFUSALS
from tests.api.recorded.rows import make_rows
from tests.reviews import queues

RECORDED = Path(__file__).parent / "recorded" / "answers.json"


def summarize(answers: dict[str, list[Any]]) -> dict[str, Any]:
    """Status and digest of each answer, and in full, once each, the headers and bodies of those that refuse."""
    problems, digests = {}, {}
    for name, (status, headers, body) in answers.items():
        content = json.dumps([headers, body], ensure_ascii=False)
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        digests[name] = f"{status} {digest}"
        if status >= 400:
            problems[digest] = [headers, body]
    return {"answers": digests, "problems": dict(sorted(problems.items()))}


def write(summary: dict[str, Any]) -> str:
    """JSON with one answer a line."""
    parts = [
        f"{json.dumps(part)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in entries.items())
        + "\n}"
        for part, entries in summary.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="the numbers of rows are those of SQLite")
@pytest.mark.django_db
def test_every_answer_is_the_recorded_one(monkeypatch, settings, tmp_path):
    settings.UPLOADS_DIR, settings.EXPORTS_DIR = tmp_path / "uploads", tmp_path / "exports"
    for module, name in ((factories, "_numbers"), (more_rows, "_pids"), (queues, "_numbers")):
        monkeypatch.setattr(module, name, count(1))
    unmixed = SimpleNamespace(random=lambda: 0.9, sample=lambda rows, number: list(rows)[:number])
    monkeypatch.setattr(side_order, "_drawn", unmixed)
    # The audit log names the command that changed something.
    monkeypatch.setattr(sys, "argv", ["pytest"])
    with connection.cursor() as cursor:
        # New rows have the same numbers whatever was stored before; documented examples name smaller ones.
        cursor.execute("DELETE FROM sqlite_sequence")
        cursor.execute(
            "INSERT INTO sqlite_sequence SELECT name, 1000 FROM sqlite_schema WHERE sql LIKE '%AUTOINCREMENT%'"
        )
    answers = record_answers(make_rows())
    answers |= {f"raised: {type(error).__name__} {place}": render(error) for place, error in enumerate(REFUSALS)}
    summary = summarize(answers)
    assert [name for name, (status, *_) in answers.items() if status >= 500 and not name.startswith("raised: ")] == []
    if os.environ.get("RECORD"):
        RECORDED.write_text(write(summary))
    recorded = json.loads(RECORDED.read_text())
    changed = {name: answers[name] for name, one in summary["answers"].items() if recorded["answers"].get(name) != one}
    assert changed == {}
    assert summary == recorded


def kinds_of(kind: type[Exception]) -> set[type[Exception]]:
    return {kind}.union(*(kinds_of(one) for one in kind.__subclasses__()))


def test_every_refusal_is_recorded():
    import_module("apps.api.urls")
    # Pages have some of their own.
    of_the_api = {kind for kind in kinds_of(Refusal) if not kind.__module__.startswith("apps.dashboard.")}
    # tests/api/test_repeating.py has these two.
    assert of_the_api - {type(error) for error in REFUSALS} == {Refusal, KeyReused, StillUnderWay}
