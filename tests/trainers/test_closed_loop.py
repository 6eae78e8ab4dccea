"""`make closed-loop`, small: a real server, the real trainer, weights that do better on tasks that they never saw."""

import contextlib
import json
from pathlib import Path

import pytest

from scripts.build_environment import environment_folder, is_complete
from tests.faults.installation import Installation

pytestmark = pytest.mark.slow
SECONDS = 600


def test_new_weights_are_rewarded_more_often_on_held_out_tasks(trainers_python: Path, tmp_path: Path, show) -> None:
    if not is_complete(environment_folder("vllm")):
        pytest.skip("vLLM's environment is not built on this machine: make vllm")
    with contextlib.closing(Installation(tmp_path, database_url=f"sqlite:///{tmp_path}/gymweb.sqlite3")) as own:
        sizes = ["--seeds", 0, "--tasks", 150, "--held-out", 100, "--repeats", 2]
        program = own.start("loop", "examples/closed_loop/loop.py", *sizes, OMP_NUM_THREADS=1)
        assert program.wait(SECONDS) == 0, program.said[-4000:]
        (row,) = json.loads(program.said.splitlines()[-1])["seeds"]
        versions = own.rows(
            "SELECT r.model_version, t.split, count(*) FROM rollouts_rollout r JOIN tasks_task t ON t.id = r.task_id "
            "GROUP BY 1, 2 ORDER BY 1, 2"
        )
        manifest = json.loads((tmp_path / "closed-loop" / "demonstrations-0" / "manifest.json").read_text())
    show(**row)
    assert (row["tasks"], row["rollouts"]) == (100, [200, 200])
    assert row["before"] < row["after"]
    assert row["low"] > 0
    assert versions == [("base", "held_out", 200), ("base", "train", 300), ("trained-0", "held_out", 200)]
    assert (manifest["format"], manifest["counts"]["considered"]) == ("trl_sft_tokens", 300)
    assert manifest["filters"]["splits"] == ["train"]
