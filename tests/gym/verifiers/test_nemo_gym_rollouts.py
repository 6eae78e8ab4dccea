"""Real stored rollouts are verified again to the rewards that NeMo Gym's own servers gave them."""

import json

import pytest

from apps.gym.verifiers.registry import read_verifier
from tests.gym.policy.shared_material import SHARED

FOLDER = SHARED / "data" / "nemo_gym"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the folder of real rows is not here")

KINDS = {
    "mcqa": {"type": "multiple_choice"},
    "string_match": {"type": "string_match"},
    "xlam_fc": {"type": "tool_calls"},
    "example_tool_call_multireward": {"type": "tool_call_form"},
    "example_multi_step": {
        "type": "call_argument",
        "tool": "extract_synonym_values",
        "argument": "synonym_values",
        "expected_field": "expected_synonym_values",
    },
    "math_with_judge": {"type": "math"},
}
STALE = {("mcqa", 2)}
"""Its recorded reward was given under another rule: the folder's README names it."""


def read(name):
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def prompt(row):
    given = row["responses_create_params"]["input"]
    return given if isinstance(given, str) else [item.get("content") for item in given]


@pytest.mark.parametrize("name", KINDS)
def test_stored_rollouts_get_the_reward_that_was_recorded(name):
    verifier = read_verifier(KINDS[name])
    tasks = read(f"{name}.example.jsonl")
    rewards, recorded = [], []
    for index, rollout in enumerate(read(f"{name}.example_rollouts.jsonl")):
        task = next((task for task in tasks if prompt(task) == prompt(rollout)), {})
        row = {**task, **{key: value for key, value in rollout.items() if key != "response"}}
        if (name, index) in STALE:
            continue
        rewards.append(verifier.verify(row, rollout["response"]).value)
        recorded.append(rollout.get("library_reward", rollout["reward"]))
    assert len(rewards) >= 4
    assert rewards == recorded
