"""A database of GymWeb 0.2.0 is upgraded; a recheck finds all rollouts of the wrong kinds, and only them."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from apps.gym.stored_rules import RULES

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "rollouts" / "kept" / "gymweb-0.2.0.sqlite3.gz"


@pytest.fixture
def step(tmp_path):
    """A function that runs a step of tests.rollouts.kept.steps on the upgraded database."""
    (tmp_path / "gymweb.sqlite3").write_bytes(gzip.decompress(KEPT.read_bytes()))
    without = {"GYMWEB_DATABASE_URL", "DJANGO_SETTINGS_MODULE"}
    environment = {name: value for name, value in os.environ.items() if name not in without}
    environment["GYMWEB_VAR"] = str(tmp_path)

    def run(*command, code=0):
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    run("manage.py", "migrate", "--verbosity", "0")
    return lambda name, code=0: json.loads(run("-m", "tests.rollouts.kept.steps", name, code=code).splitlines()[-1])


def test_a_recheck_finds_the_wrong_rollouts_and_only_them(step):
    expected, before = step("expected"), step("state")
    masked = {int(pk) for pk, kind in expected.items() if kind == "masked"}
    assert len(masked) == 4
    found = step("check")
    assert {int(pk) for pk, kind in found["kinds"].items() if kind == "outcome"} == masked
    checked = step("state")
    assert all(checked[name] == before[name] for name in ("rewards", "masked", "tokens", "used", "stale"))
    untrainable = {int(pk) for pk, kind in found["kinds"].items() if kind == "untrainable"}
    counted = {int(pk) for pk, kind in found["kinds"].items() if kind == "counts"}
    assert found["states"] == {
        "masked": "ready",
        "forced": "ready",
        "free": "ready",
        "plain": "applied",
        "captured": "ready",
        "imported": "ready",
    }
    assert found["earlier"] == 5
    after = step("apply")
    # By a grammar: the strict tools of the calculator.
    assert [after["tokens"][str(pk)] for pk in untrainable] == [[8, 0]]
    # The calls of imported rollouts have no token counts, which 0.2.0 did not count.
    without_usage = {14, 17}
    assert all(after["tokens"][str(pk)][0] == after["tokens"][str(pk)][1] > 0 for pk in counted - without_usage)
    assert {int(pk) for pk in after["tokens"]} == untrainable | counted - without_usage
    assert without_usage < counted
    assert {int(pk) for pk in after["masked"]} == masked
    assert sorted(set(after["masked"].values())) == ["masked", "provider_oom_killed"]
    rewards = {pk: None if int(pk) in masked else reward for pk, reward in before["rewards"].items()}
    assert after["rewards"] == rewards
    assert {name: sums[:2] for name, sums in after["sums"].items()} == {
        "masked": [6, 3.0],
        "forced": [1, 1.0],
        "free": [1, 1.0],
        "plain": [1, 1.0],
        "captured": [2, 2.0],
        "imported": [2, 0.0],
    }
    assert {sums[2] for sums in after["sums"].values()} == {RULES}
    assert (after["used"]["masked"], after["used"]["imported"]) == (6, 2)
    # The rows and the pairs of masked rollouts, but not the demonstrations, which were the solved ones. The fourth has
    # rows of a format whose cards had no types.
    assert len(found["pairs"]) == 2
    assert after["stale"] == {"pairs": found["pairs"], "sets": [1], "exports": found["exports"]}
    assert (after["manifests"], found["exports"]) == ([1, 3, 4, 5], [1, 3, 4, 5])
    assert (after["accepted"], after["overrides"]) == (3, before["overrides"])
    assert set(found["overrides"]) == {pk for pk in masked if pk <= 8}
    again = step("check")
    assert (again["kinds"], again["earlier"], set(again["states"].values())) == ({}, 0, {"applied"})


def test_an_apply_that_was_killed_is_resumed(step):
    found = step("check")
    step("apply_and_die", code=9)
    partial = step("state")
    assert sum(applied for _, applied, _ in partial["rechecks"].values()) == 1
    finished = step("resume")
    assert {tuple(state) for state in finished["rechecks"].values()} <= {("applied", number, 0) for number in range(5)}
    assert sum(applied for _, applied, _ in finished["rechecks"].values()) == len(found["kinds"])
    assert finished["sums"]["masked"] == [6, 3.0, RULES]
