"""`make vllm-demo`: the two checkpoints, and what people find afterwards."""

import contextlib
import json
from pathlib import Path

import pytest

from tests.faults.installation import Installation
from tests.vllm.serving import Bench

pytestmark = pytest.mark.slow
# Two servers start, one after the other: half a minute each, and minutes on a machine that others use too.
DEMO_SECONDS = 600


def test_the_demo_ends_with_the_rewards_that_its_card_promises(bench: Bench, tmp_path: Path, show) -> None:
    bench.stop()
    with contextlib.closing(Installation(tmp_path, database_url=f"sqlite:///{tmp_path}/gymweb.sqlite3")) as own:
        demo = Bench(own, bench.python)
        said = demo.manage("vllm_demo", "--no-serve", "--python", bench.python, seconds=DEMO_SECONDS)
    summary = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    show(**summary)
    half, strong = summary["checkpoints"]["half"], summary["checkpoints"]["strong"]
    assert 0.4 <= half["mean_reward"] <= 0.8
    assert strong["mean_reward"] > 0.9
    for own in (half, strong):
        assert (own["rollouts"], own["completed"], own["failed"]) == (200, 200, 0)
        assert own["calls_with_tokens"] == own["calls"] >= 400
        assert own["whole_rollouts"] >= 200 - own["prefix_breaks"]
    assert summary["pairs"] > 0
    assert [export["format"] for export in summary["exports"]] == ["trl_sft", "trl_dpo", "nemo_gym_rollouts"]
    rows = [json.loads(line) for line in (Path(summary["exports"][2]["path"]) / "train.jsonl").read_text().splitlines()]
    assert len(rows) == 200
    # A model that ends its turn at once has said nothing that tokens could stand beside.
    spoken = [row for row in rows if row["response"]["output"]]
    assert len(spoken) >= 190
    assert all(row["response"]["output"][-1]["generation_token_ids"] for row in spoken)
    versions = demo.installation.rows("SELECT model_version, count(*) FROM rollouts_rollout GROUP BY 1 ORDER BY 1")
    assert versions == [("half", 200), ("strong", 200)]
