"""Conversations as text, in the wording of ChatML with Hermes tool calls, which Qwen 2.5, Qwen 3 and their kin know.

For trainers whose loaders drop tools or tool calls: what is text already cannot be dropped. Source of the wording: the
chat templates of these models, as TRL ships them.
"""

import json
from typing import Any

from apps.gym.traces.messages import Message

_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TAIL = (
    "</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


def tools_block(tools: list[dict[str, Any]]) -> str:
    """What a system message says of the tools on offer; `tools` are nested, as of Chat Completions."""
    lines = (json.dumps(tool, ensure_ascii=False) for tool in tools)
    return "\n".join([_HEAD, *lines, _TAIL])


def call_text(call: dict[str, Any]) -> str:
    """One tool call as the model writes it."""
    function = call["function"]
    arguments = function["arguments"]
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {written}}}\n</tool_call>'


def turn_text(message: Message) -> str:
    """What an assistant message says: its content, then its calls. Reasoning alone ends in the break before a call."""
    content: str = message["content"]
    calls = "\n".join(call_text(call) for call in message.get("tool_calls", ()))
    separate = content and calls and not content.endswith("</think>\n\n")
    return f"{content}\n{calls}" if separate else content + calls


def prompt_text(messages: list[Message]) -> str:
    """The messages, and the opening of the model's turn."""
    return _render(messages) + "<|im_start|>assistant\n"


def completion_text(messages: list[Message]) -> str:
    """What follows `prompt_text`, up to the end of the last turn and without a newline after it."""
    return _render(messages).removeprefix("<|im_start|>assistant\n").removesuffix("\n")


def _render(messages: list[Message]) -> str:
    written: list[str] = []
    answers: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            # Answers of one turn stand in one user message.
            answers.append(f"<tool_response>\n{message['content']}\n</tool_response>")
            continue
        written += _flush(answers)
        text = turn_text(message) if message["role"] == "assistant" else message["content"]
        written.append(_framed(message["role"], text))
    return "".join([*written, *_flush(answers)])


def _flush(answers: list[str]) -> list[str]:
    framed = [_framed("user", "\n".join(answers))] if answers else []
    answers.clear()
    return framed


def _framed(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"
