"""Conversations as text are worded as the templates of Qwen 3 word them."""

from typing import Any

import pytest

from apps.gym.exporters.training_conversations import completion_text

CALL: dict[str, Any] = {"type": "function", "id": "c", "function": {"name": "search", "arguments": {"query": "a"}}}
CALLED = '<tool_call>\n{"name": "search", "arguments": {"query": "a"}}\n</tool_call>'
THOUGHT = "<think>\nLet me see.\n</think>\n\n"


@pytest.mark.parametrize(
    ("content", "calls", "text"),
    [
        ("", [CALL], CALLED),
        (THOUGHT, [CALL], f"{THOUGHT}{CALLED}"),
        (f"{THOUGHT}I search.", [CALL, CALL], f"{THOUGHT}I search.\n{CALLED}\n{CALLED}"),
        ("I search.", [CALL], f"I search.\n{CALLED}"),
        (f"{THOUGHT}It is so.", [], f"{THOUGHT}It is so."),
        (THOUGHT, [], THOUGHT),
    ],
)
def test_a_call_follows_reasoning_directly_and_text_after_a_line_break(content, calls, text):
    message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
    assert completion_text([message]) == f"{text}<|im_end|>"
