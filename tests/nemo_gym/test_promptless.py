"""Task files of NeMo Gym whose prompt comes from the environment or the agent server."""

import orjson
import pytest

from apps.gym.rollout_files.rollout_rows import read_attempt
from apps.gym.tasks.task_rows import parse_line
from apps.gym.traces.events import Prompt
from tests.nemo_gym.attempts import SHARED, needs_shared

FILES = sorted((SHARED.parent / "nemo_gym_promptless").glob("*.jsonl"))


@needs_shared
def test_every_row_is_a_task_with_its_own_text():
    assert len(FILES) == 4
    for file in FILES:
        lines = file.read_bytes().splitlines()
        assert [parse_line(line).row_json.encode() for line in lines] == lines


@pytest.mark.parametrize("asked", [[], ""])
def test_an_attempt_without_a_prompt_is_imported(asked):
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "42"}]}
    row = {"responses_create_params": {"input": asked}, "response": {"output": [said]}, "reward": 1.0, "task_idx": 0}
    attempt = read_attempt(
        row, parse_line(orjson.dumps({"responses_create_params": {"input": asked}})).row, environment="e"
    )
    assert attempt.reward == 1.0
    (prompt,) = [event for event in attempt.events if isinstance(event, Prompt)]
    assert prompt.items == []
