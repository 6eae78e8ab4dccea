"""`make demo SERVE=0` on a database of its own: one JSON line, files that match their manifests."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_demo_ends_with_a_true_summary(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")}
    environment |= {"GYMWEB_VAR": str(tmp_path), "GYMWEB_LOG_LEVEL": "WARNING"}
    command = [sys.executable, "manage.py", "demo", "--no-serve"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["rollouts"] == summary["completed"] >= 200
    assert summary["failed"] == 0
    assert 0.3 <= summary["mean_reward"] <= 0.9
    assert summary["pairs"] >= 20
    assert [export["format"] for export in summary["exports"]] == ["trl_sft", "trl_dpo", "nemo_gym_rollouts"]
    for export in summary["exports"]:
        content = (Path(export["path"]) / "train.jsonl").read_bytes()
        manifest = json.loads((Path(export["path"]) / "manifest.json").read_bytes())
        assert hashlib.sha256(content).hexdigest() == export["sha256"] == manifest["sha256"]
        assert content.count(b"\n") == export["rows"] == manifest["rows"] > 0


@pytest.mark.django_db
def test_the_demos_person_has_no_password_and_may_set_one():
    from gymweb.management.commands.demo import find_person

    person = find_person()
    assert (person.has_usable_password(), person.role) == (False, "admin")
    assert find_person() == person
