"""The layout check names folders with too many modules and modules with the same name."""

import subprocess
import sys
from pathlib import PurePosixPath

from scripts.check_layout import MOST_MODULES, find_problems
from tests.gymweb.serving import ROOT


def test_this_project_has_no_problems():
    done = subprocess.run(
        [sys.executable, "scripts/check_layout.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_folder_with_too_many_modules_is_named():
    modules = [PurePosixPath(f"apps/large/module_{number}.py") for number in range(MOST_MODULES + 1)]
    assert find_problems(modules[:-1]) == []
    assert find_problems(modules) == ["apps/large has 29 modules, at most 28: make packages by subject"]


def test_two_modules_with_one_name_are_named_unless_the_name_is_conventional():
    modules = [PurePosixPath(f"apps/{app}/{name}.py") for app in ("one", "two") for name in ("reading", "models")]
    assert find_problems(modules) == ["apps/one/reading.py, apps/two/reading.py have the same name: rename all but one"]
