"""Turns with calls are read back by LLaMA-Factory's rules, whatever the model wrote."""

import itertools

import pytest

from apps.gym.exporters.llama_factory import sharegpt_turns
from apps.gym.exporters.training_conversations import thought_text
from tests.gym.exporters.validators import read_function_turn

ONE = {"name": "run", "arguments": {"command": "echo 1"}}
QUOTED = '<tool_call>{"name": "run", "arguments": {"command": "echo 1"}}</tool_call>'
TEXTS = [
    "",
    "I look.",
    "I write <tool_call> next.",
    "</tool_call> and <tool_call>",
    f"So: {QUOTED}",
    "<tool_call>\nnot JSON\n</tool_call>",
    "a thought\n</think>\n\nand more",
]
ARGUMENTS = ["echo 1", "<tool_call>", "</tool_call>", QUOTED, "<think>\n1\n</think>\n\n", 'a < b \\ "c" \u00e9']


@pytest.mark.parametrize("calls", [1, 2])
def test_thought_text_and_calls_are_read_back(calls: int) -> None:
    for thought, text, command in itertools.product([None, *TEXTS], TEXTS, ARGUMENTS):
        content = (thought_text(thought) if thought is not None else "") + text
        wanted = [{"name": "run", "arguments": {"command": command}}] * calls
        message = {"role": "assistant", "content": content, "tool_calls": [{"function": one} for one in wanted]}
        *_, turn = sharegpt_turns([{"role": "user", "content": "Look."}, message])
        before, read = read_function_turn(turn["value"])
        assert read == wanted
        assert before.rstrip("\n") == content.rstrip("\n")


def test_a_turn_without_marks_keeps_the_usual_order() -> None:
    message = {"role": "assistant", "content": "I look.", "tool_calls": [{"function": ONE}]}
    *_, turn = sharegpt_turns([{"role": "user", "content": "Look."}, message])
    assert turn == {"from": "function_call", "value": f"I look.\n{QUOTED}"}
