"""Run docs/start/own_environment.md as it is written, in a temporary folder."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from apps.gym.written.registry import WRITTEN

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = (ROOT / "docs" / "start" / "own_environment.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", CHAPTER, re.DOTALL | re.MULTILINE)


def run(line, environment):
    """One line of the chapter, by the Python that runs these tests."""
    words = [word.replace("~", environment["HOME"], 1) if word.startswith("~") else word for word in shlex.split(line)]
    assert words[0] == ".venv/bin/python"
    command = [sys.executable, *words[1:]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.slow
def test_the_documented_environment_earns_the_documented_rewards(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")}
    var = tmp_path / "var"
    environment = {**kept, "HOME": str(tmp_path), "GYMWEB_VAR": str(var), "PYTHONDONTWRITEBYTECODE": "1"}
    (scaffold,), (install, test), commands = (block.splitlines() for block in blocks("sh"))
    assert install == ".venv/bin/pip install pytest"  # not run: it would fetch, and these tests have pytest
    assert str(tmp_path / "environments" / "parcels" / "parcels.py") in run(scaffold, environment)
    # What was written runs as it is, before anything is filled in.
    assert " passed" in run(test, environment)
    (tutorial,) = blocks("python")
    (tmp_path / "environments" / "parcels" / "parcels.py").write_text(tutorial)
    assert "2 passed" in run(test, environment)
    without_kit = tutorial[: tutorial.index("    @staticmethod\n    def make_task")]
    (tmp_path / "environments" / "parcels" / "parcels.py").write_text(without_kit)
    assert "2 skipped" in run(test, environment)
    (tmp_path / "environments" / "parcels" / "parcels.py").write_text(tutorial)

    name, _, value = commands[0].removeprefix("export ").partition("=")
    environment[name] = value.replace("~", environment["HOME"], 1)
    run(".venv/bin/python manage.py migrate --verbosity 0", environment)
    check, generate, collect = commands[1:]
    assert "no issues" in run(check, environment)
    assert "30 tasks" in run(generate, environment)
    report = json.loads(run(f"{collect} --json", environment).splitlines()[-1])
    assert (report["rollouts"], report["completed"], report["failed"]) == (30, 30, 0)
    # The ten easy ones of thirty, as the chapter says.
    assert report["mean_reward"] == pytest.approx(10 / 30)


def test_a_scaffold_is_made_outside_the_project_only_and_never_over_another(tmp_path):
    call_command("new_environment", "harbour", into=str(tmp_path))
    folder = tmp_path / "harbour"
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "harbour.py",
        "pyproject.toml",
        "test_harbour.py",
    ]
    texts = [path.read_text() for path in folder.iterdir()]
    assert [word for word in ("CLASS", "NAME", "PROJECT", "FOLDER") for text in texts if word in text] == []
    with pytest.raises(CommandError, match="already exists"):
        call_command("new_environment", "harbour", into=str(tmp_path))
    with pytest.raises(CommandError, match="is inside this project"):
        call_command("new_environment", "harbour", into=str(ROOT / "apps"))


@pytest.mark.parametrize("name", ["Harbour", "1st", "class", "json", "har-bour", "../up", "calculator", ""])
def test_a_name_that_cannot_be_is_refused(name, tmp_path):
    with pytest.raises(CommandError):
        call_command("new_environment", name, into=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert name not in WRITTEN
