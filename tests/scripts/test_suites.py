"""A suite is due while its paths differ from those that it last passed with, and only a full pass is recorded."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import suites
from scripts.suites import ROOT, SUITES, Suite, find_due, list_files, read_record, run_suite


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one suite that tests one folder, and pytest as it is without this project's settings."""
    monkeypatch.setattr(
        suites, "SUITES", {"wire": Suite(tests="tests/wire", environments=("wire",), paths=("apps/*",))}
    )
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, text in {
        "apps/call.py": "ANSWER = 42\n",
        "other.py": "",
        "requirements-wire.txt": "server==1\n",
        "tests/wire/test_call.py": "from apps.call import ANSWER\n\n\ndef test_answer():\n    assert ANSWER == 42\n",
        ".ci/run": "",
        ".gitignore": "__pycache__/\n",
        "pytest.ini": "[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


def test_a_suite_that_passed_is_due_again_after_a_change_to_its_paths(clone: Path):
    assert find_due(clone) == ["wire"]
    assert run_suite(clone, "wire") == 0
    assert find_due(clone) == []
    (clone / "other.py").write_text("changed = True\n")
    assert find_due(clone) == []
    for name in ("apps/call.py", "requirements-wire.txt", "tests/wire/test_call.py"):
        before = (clone / name).read_text()
        (clone / name).write_text(before + "# changed\n")
        assert find_due(clone) == ["wire"], name
        (clone / name).unlink()
        assert find_due(clone) == ["wire"], name
        (clone / name).write_text(before)
        assert find_due(clone) == []
    (clone / "apps" / "new.py").touch()
    assert find_due(clone) == ["wire"]


def test_a_failed_or_skipped_suite_stays_due(clone: Path):
    tests = clone / "tests" / "wire" / "test_call.py"
    passing = tests.read_text()
    tests.write_text(passing.replace("== 42", "== 43"))
    assert run_suite(clone, "wire") == 1
    tests.write_text(passing + "\n\ndef test_more():\n    import pytest\n\n    pytest.skip('no server')\n")
    assert run_suite(clone, "wire") == 0
    assert (find_due(clone), read_record(clone)) == (["wire"], {})


@pytest.mark.parametrize("name", SUITES)
def test_every_path_of_a_suite_exists(name: str):
    included = [path for path in SUITES[name].triggers if not path.startswith(":(exclude)")]
    assert [path for path in included if not list_files(ROOT, [path])] == []


def test_only_the_containers_depend_on_migrations():
    migrations = set(list_files(ROOT, ["apps/*/migrations/*.py"]))
    depend = {name for name, suite in SUITES.items() if migrations & {*list_files(ROOT, suite.triggers)}}
    assert depend == {"containers"}


def test_all_suites_can_be_asked_for():
    command = [sys.executable, "scripts/suites.py", "due", "--all"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed.split() == list(SUITES)
