"""Captured log probabilities against computations in other data types, with a model that is often unsure."""

import json
import os
import subprocess

import pytest

from tests.faults.installation import ROOT
from tests.vllm.serving import Bench, Vllm

pytestmark = pytest.mark.slow


@pytest.fixture
def unsure(bench: Bench) -> Vllm:
    return bench.serve("unsure", "--max-model-len", 1024, dtype="bfloat16")


def check(bench: Bench, port: int, key: str, *options: object) -> dict:
    """What `gymweb models check-logprobs` prints, run with vLLM's Python, which has torch and transformers."""
    run = "from gymweb_client.cli import main; main()"
    command = [bench.python, "-c", run, "models", "check-logprobs", "unsure", *options, "--json"]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "clients" / "python"),
        "GYMWEB_URL": f"http://127.0.0.1:{port}",
        "GYMWEB_KEY": key,
    }
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_the_data_type_makes_the_difference_and_the_check_shows_it(bench: Bench, unsure: Vllm, show) -> None:
    planned = bench.installation.plan(agents={"unsure": {"strict_tools": "never"}}, key="checker")
    report = bench.collect("sums", "unsure", "--agent", "unsure", "--repeats", 2, "--seats", 32, "--seed", 5)
    assert report["failed"] == 0
    web, port = bench.installation.serve("--no-worker")
    folder = bench.installation.folder / "unsure"
    found = {"server": check(bench, port, planned["key"], "--rollouts", 128)}
    for dtype in ("bfloat16", "float32"):
        local = ("--folder", folder, "--dtype", dtype, "--rollouts", 128)
        found[dtype] = check(bench, port, planned["key"], *local)
    web.end()
    for name, one in found.items():
        figures = one["figures"]
        show(against=name, ratio_mean=figures["ratio_mean"], ratio_outside=figures["ratio_outside"], **figures["every"])
        show(against=name, p_below=0.9, **figures["uncertain"])
        assert (one["problem"], one["rollouts"]) == ("", 128)
        assert figures["every"]["tokens"] > 2_000
        assert figures["uncertain"]["tokens"] > 300
    above = {name: one["figures"]["every"]["above"]["0.001"] for name, one in found.items()}
    # The server agrees with itself; another implementation in the same data type, and float32, do not.
    assert above["server"] < 0.05
    assert above["bfloat16"] > 0.3
    assert above["float32"] > 0.5
    assert 0.01 < found["float32"]["figures"]["every"]["largest"] < 1.0
    assert found["float32"]["compared_with"] == "unsure, float32"
    shown = bench.installation.rows("SELECT logprob_check FROM policies_policymodel WHERE slug = 'unsure'")
    assert json.loads(shown[0][0])["compared_with"] == "unsure, float32"
