"""The command line says what was stored, or which lines are bad, and exits accordingly."""

import io
import sys

import pytest
from django.core.management import CommandError, call_command

from apps.tasks.models import Dataset, Task, Upload
from tests.factories import make_environment

pytestmark = pytest.mark.django_db

GOOD = b'{"responses_create_params": {"input": "2 + 2?"}, "expected_answer": "4"}\n'


@pytest.fixture(autouse=True)
def environment():
    return make_environment(slug="adding")


def upload(*arguments: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("upload_tasks", *arguments, stdout=out, stderr=err)
    except CommandError as error:
        return f"exit {error.returncode}: {error}", err.getvalue()
    return out.getvalue(), err.getvalue()


def test_a_file_makes_the_dataset_and_its_first_version(tmp_path):
    (tmp_path / "tasks.jsonl").write_bytes(GOOD * 2)
    arguments = (str(tmp_path / "tasks.jsonl"), "--dataset", "sums")
    assert upload(*arguments, "--environment", "adding") == ("sums@v1: 2 tasks\n", "")
    assert upload(*arguments) == ("sums@v2: 2 tasks\n", "")
    assert Dataset.objects.get().environment.slug == "adding"


def test_bad_lines_are_printed_and_nothing_is_stored(tmp_path, uploads_dir):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(GOOD + b"[]\n")
    out, err = upload(str(path), "--dataset", "sums", "--environment", "adding")
    reason = "the line holds a list, not a JSON object"
    assert (out.startswith("exit 1: 1 of 2 lines "), f"Line 2: {reason}" in out) == (True, True)
    rejected = uploads_dir / f"{Upload.objects.get().pk}.rejected.jsonl"
    assert err == f"line 2: {reason}\nAll rejected lines: {rejected}\n"
    assert Task.objects.count() == 0


def test_skip_stores_the_good_lines(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"[]\n" * 101 + GOOD)
    out, err = upload(str(path), "--dataset", "sums", "--environment", "adding", "--on-error", "skip")
    assert out == "sums@v1: 1 tasks, 101 lines rejected\n"
    assert "line 100: the line holds a list, not a JSON object\n… and 1 more lines\n" in err


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD)))
    assert upload("-", "--dataset", "sums", "--environment", "adding") == ("sums@v1: 1 tasks\n", "")


def test_missing_and_invalid_options_are_explained(tmp_path):
    path = tmp_path / "tasks.jsonl"
    assert upload(str(path), "--dataset", "sums")[0] == f"exit 1: {path} cannot be read: No such file or directory"
    path.write_bytes(GOOD)
    fresh = upload(str(path), "--dataset", "sums")[0]
    assert (fresh.startswith("exit 1: "), "dataset sums" in fresh, "--environment" in fresh) == (True, True, True)
    unknown = upload(str(path), "--dataset", "sums", "--environment", "nowhere")[0]
    assert (unknown.startswith("exit 1: "), "environment nowhere" in unknown, "adding" in unknown) == (True,) * 3
    upload(str(path), "--dataset", "sums", "--environment", "adding")
    other = upload(str(path), "--dataset", "sums", "--environment", "nowhere")[0]
    assert (other.startswith("exit 1: "), "environment adding, not nowhere" in other) == (True, True)
