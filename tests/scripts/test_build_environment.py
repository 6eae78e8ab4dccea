"""Environments of their own are built from a lock once, and say clearly what this machine cannot have."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import build_environment as building

SCRIPT = Path(building.__file__)


@pytest.fixture
def locks(tmp_path, monkeypatch):
    """A folder of locks, and one for environments; without an index to download from."""
    monkeypatch.setattr(building, "ROOT", tmp_path)
    monkeypatch.setenv("GYMWEB_ENVS", str(tmp_path / "environments"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path


def test_the_folder_follows_what_the_lock_pins_and_not_its_comments(locks):
    lock = locks / "requirements-thing.txt"
    lock.write_text("# made by hand\none==1.0\n    # via two\n")
    first = building.environment_folder("thing")
    lock.write_text("one==1.0\n")
    assert building.environment_folder("thing") == first
    assert (first.parent, first.name[:6], len(first.name)) == (locks / "environments", "thing-", 18)
    lock.write_text("one==1.1\n")
    assert building.environment_folder("thing") != first


def test_without_the_setting_environments_are_in_the_cache_of_the_person(locks, monkeypatch):
    (locks / "requirements-thing.txt").write_text("one==1.0\n")
    monkeypatch.delenv("GYMWEB_ENVS")
    assert building.environment_folder("thing").parent == Path.home() / ".cache" / "gymweb"


def test_an_unknown_name_is_answered_with_the_known_ones(locks):
    (locks / "requirements-thing.txt").write_text("")
    with pytest.raises(building.CannotBuild, match=r"requirements-other\.txt; .*: thing\."):
        building.environment_folder("other")


def test_an_environment_is_built_once_and_a_half_built_one_again(locks, capsys):
    (locks / "requirements-thing.txt").write_text("# nothing\n")
    half = building.environment_folder("thing")
    half.mkdir(parents=True)
    (half / "left").touch()
    assert building.is_complete(half) is False
    folder = building.build_environment("thing", python=sys.executable, seconds=120)
    assert (folder, building.is_complete(folder), (folder / "left").exists()) == (half, True, False)
    made = (folder / building.COMPLETE).stat().st_mtime_ns
    capsys.readouterr()
    assert building.build_environment("thing", python=sys.executable, seconds=120) == folder
    assert (folder / building.COMPLETE).stat().st_mtime_ns == made
    assert capsys.readouterr() == ("", "")


def test_a_package_that_is_not_to_be_had_is_named_and_nothing_is_left_half_built(locks):
    (locks / "requirements-thing.txt").write_text("torch==2.13.0+cpu\n")
    with pytest.raises(building.CannotBuild) as problem:
        building.build_environment("thing", python=sys.executable, seconds=120)
    first, second, *_ = str(problem.value).splitlines()
    assert "no wheel for torch==2.13.0+cpu" in first
    assert "not on PyPI" in second
    assert [path.name for path in (locks / "environments").iterdir() if path.is_dir()] == []


def test_time_is_bounded(locks):
    (locks / "requirements-thing.txt").write_text("torch==2.13.0+cpu\n")
    with pytest.raises(building.CannotBuild, match=r"not installed within 0\.01 s"):
        building.build_environment("thing", python=sys.executable, seconds=0.01)
    assert not building.environment_folder("thing").exists()


def test_a_python_of_another_time_is_refused(locks):
    (locks / "requirements-thing.txt").write_text("")
    old = locks / "python3"
    old.write_text("#!/bin/sh\necho 3 9\n")
    old.chmod(0o755)
    with pytest.raises(building.CannotBuild, match=r"is Python 3\.9; the packages need Python 3\.11 to 3\.14"):
        building.build_environment("thing", python=str(old), seconds=1)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "ERROR: No matching distribution found for einops==0.8.2",
            "no wheel for einops==0.8.2",
        ),
        (
            "WARNING: Retrying after: Temporary failure in name resolution\n"
            "ERROR: Could not find a version\nERROR: No matching distribution found for attrs==26.1.0",
            "index cannot be reached",
        ),
        ("WARNING: noise\nERROR: the disk is full", "\nERROR: the disk is full"),
    ],
)
def test_what_pip_says_is_put_in_words_for_people(output, said):
    assert said in building.explain_failure(output)


def test_where_names_the_folder_and_says_by_its_status_whether_it_is_there(tmp_path):
    asked = [sys.executable, str(SCRIPT), "vllm", "--where"]
    done = subprocess.run(asked, capture_output=True, text=True, env={"GYMWEB_ENVS": str(tmp_path)}, check=False)
    assert (done.returncode, Path(done.stdout.strip()).parent, done.stderr) == (1, tmp_path, "")
