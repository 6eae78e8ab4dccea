"""What is written as text is, byte for byte, what the templates that TRL ships make of the same messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps.gym.exporters.protocol import Options
from apps.gym.exporters.training_conversations import attempt_conversation, completion_text, prompt_text
from apps.gym.traces.events import ToolResult
from tests.gym.exporters.attempts import ARGUMENTS, SEEN, attempt, paris
from tests.gym.traces import call, said, thought, trace, turn
from tests.trainers.conftest import Program

TEMPLATES = ("qwen3.jinja", "qwen3_training.jinja")


def answered(call_id: str) -> ToolResult:
    return ToolResult(call_id=call_id, name="get_weather", output=SEEN)


ATTEMPTS = {
    "reasoning, then a call": paris(),
    "reasoning, words and two calls": trace(
        turn(thought("Both."), said("I look."), call(ARGUMENTS, "a"), call(ARGUMENTS, "b"), finish_reason="tool_calls"),
        answered("a"),
        answered("b"),
        turn(thought("It is 22."), said("22 °C.")),
    ),
    "a call after a call": trace(
        turn(thought("One."), call(ARGUMENTS, "a"), finish_reason="tool_calls"),
        answered("a"),
        turn(thought("Another."), call(ARGUMENTS, "b"), finish_reason="tool_calls"),
        answered("b"),
        turn(thought("It is 22."), said("22 °C.")),
    ),
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_text_is_worded_as_the_template_words_the_messages(name: str, run_program: Program, tmp_path: Path) -> None:
    messages = attempt_conversation(attempt(ATTEMPTS[name]), Options(reasoning="field"))
    inline = attempt_conversation(attempt(ATTEMPTS[name]), Options(reasoning="inline", tools="system"))
    whole: dict[str, Any] = {"messages": [*messages.prompt, *messages.completion], "tools": messages.tools}
    (tmp_path / "in.json").write_text(json.dumps([whole]))
    run_program("render_messages.py", tmp_path / "in.json", tmp_path / "out.json", *TEMPLATES)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found == {
        template: [prompt_text(inline.prompt) + completion_text(inline.completion) + "\n"] for template in TEMPLATES
    }
