"""The training script in its own environment: it begins as it did; the weights that are here do as the card says."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.faults.installation import ROOT
from tests.vllm.serving import TINY, Bench

pytestmark = pytest.mark.slow

BEGIN = """
import sys; sys.path.insert(0, "scripts")
from pathlib import Path
from train_tiny_policy import PEAK_RATE, Training
training = Training(seed=11)
losses = []
for _ in range(12):
    training.step(PEAK_RATE / 3)
    losses.append(training.loss)
training.save(Path(sys.argv[1]))
print(losses[0], losses[-1], sum(p.numel() for p in training.model.parameters()))
"""

MEASURE = """
import sys; sys.path.insert(0, ".")
import json, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from scripts.tiny_policy.playing import measure_success
from scripts.tiny_policy.tasks import draw_rows
torch.set_num_threads(1)
rows = draw_rows(500, seed=30, held_out=True)
found = {}
for name in ("half", "strong"):
    folder = f"examples/tiny_policy/{name}"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    found[name] = measure_success(model, tokenizer, rows, seed=31)["success"]
print(json.dumps(found))
"""


def run(bench: Bench, program: str, *words: object) -> str:
    bench.stop()
    done = subprocess.run(
        [str(bench.python), "-c", program, *map(str, words)],
        cwd=ROOT,
        env=bench.installation.env | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]


def test_training_begins_with_the_tokenizer_that_is_here_and_learns(bench: Bench, tmp_path: Path) -> None:
    first, last, parameters = map(float, run(bench, BEGIN, tmp_path).split())
    assert last < first
    assert parameters == json.loads((TINY / "metrics.json").read_text())["parameters"]
    made, here = (json.loads((folder / "tokenizer.json").read_text()) for folder in (tmp_path, TINY / "strong"))
    # Padding is written into the file when a batch is read.
    assert {**made, "padding": None} == {**here, "padding": None}
    for name in ("chat_template.jinja", "config.json", "generation_config.json"):
        assert (tmp_path / name).read_text() == (TINY / "strong" / name).read_text()


def test_the_weights_measure_as_their_card_says(bench: Bench, show) -> None:
    found = json.loads(run(bench, MEASURE))
    show(**found)
    assert 0.50 <= found["half"] <= 0.68
    assert found["strong"] > 0.95
