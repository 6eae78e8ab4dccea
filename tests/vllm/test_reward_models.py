"""A classifier on a real vLLM as reward model: paths, shapes of replies, sigmoid, and rollouts that are too long."""

import asyncio
import math
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from apps.gym.calls.outbound import Outbound
from apps.gym.calls.outbound_policy import OutboundPolicy
from apps.gym.errors import JudgeError
from apps.gym.judging.judge import Judge
from apps.gym.verifiers.registry import read_verifier
from apps.gym.verifiers.verification import verify_attempt
from tests.plain_policies import plain_policy
from tests.vllm.serving import TINY, Bench, Vllm

pytestmark = pytest.mark.slow
MAKE = """
import sys
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

trained, folder, classes = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = AutoConfig.from_pretrained(trained)
config.num_labels = classes
torch.manual_seed(5)
AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
AutoTokenizer.from_pretrained(trained).save_pretrained(folder)
"""
CHAT = [{"role": "user", "content": "What is 3 * 4?"}, {"role": "assistant", "content": "12"}]


def make_classifier(bench: Bench, classes: int) -> Vllm:
    """A classifier with random weights and the tokenizer and chat template of the tiny policy."""
    folder = bench.installation.folder / f"classifier-{classes}"
    subprocess.run([bench.python, "-c", MAKE, TINY / "half", folder, str(classes)], check=True, capture_output=True)
    bench.stop()
    options = "auto --runner pooling"
    return Vllm(bench.installation, folder.name, folder, bench.python, "--max-model-len", 400, dtype=options)


@pytest.fixture(params=[1, 2])
def classifier(request: pytest.FixtureRequest, bench: Bench) -> Iterator[Vllm]:
    server = make_classifier(bench, request.param)
    server.start()
    yield server
    assert server.stop() == 0


def test_a_rollout_is_scored_by_a_classifier(bench: Bench, classifier: Vllm, show: Any) -> None:
    classes = int(classifier.name[-1])
    index = {} if classes == 1 else {"index": 1}
    raw = classifier.post("/classify", {"messages": CHAT, "use_activation": False}, at_root=True)["data"][0]["probs"]
    probabilities = classifier.post("/classify", {"messages": CHAT}, at_root=True)["data"][0]["probs"]
    assert len(raw) == classes
    said = score(bench, classifier, {"endpoint": "classify", "calibration": "sigmoid", **index})
    assert said["components"]["raw_score"] == pytest.approx(raw[-1], abs=1e-5)
    assert said["reward"] == pytest.approx(1 / (1 + math.exp(-raw[-1])), abs=1e-5)
    said = score(bench, classifier, {"endpoint": "pooling", **index})
    assert said["reward"] == pytest.approx(probabilities[-1], abs=1e-5)
    show(classes=classes, raw=raw, probabilities=probabilities, reward=said["reward"])
    too_long = [{"role": "user", "content": "What is 1234567 * 7654321? " * 100}, CHAT[1]]
    assert "context_length" in score(bench, classifier, {"endpoint": "pooling", **index}, too_long)["error"]
    if classes == 1:
        pair = {"text_1": CHAT[0]["content"], "text_2": "12"}
        scored = classifier.post("/score", pair, at_root=True)["data"][0]["score"]
        assert score(bench, classifier, {"endpoint": "score"})["reward"] == pytest.approx(scored, abs=1e-5)
    else:
        assert "404" in score(bench, classifier, {"endpoint": "score"})["error"]


def score(bench: Bench, classifier: Vllm, given: dict[str, Any], chat: list[dict[str, str]] = CHAT) -> dict[str, Any]:
    """What the verifier makes of a conversation."""
    verifier = read_verifier({"type": "reward_model", **given})
    row = {"responses_create_params": {"input": chat[:-1]}}

    async def run() -> dict[str, Any]:
        outbound = Outbound(OutboundPolicy(["127.0.0.1"]))
        policy = plain_policy(
            outbound, base_urls=[classifier.base_url], model_name=classifier.name, wire="chat", max_tries=1
        )
        judgement = Judge(policy, name="classifier").open_judgement(seed=1)
        try:
            reward = await verify_attempt(verifier, row, {"output": [chat[-1]]}, judgement=judgement)
        except JudgeError as error:
            return {"error": str(error)}
        finally:
            await outbound.close()
        return {"reward": reward.value, "components": reward.components}

    return asyncio.run(run())
