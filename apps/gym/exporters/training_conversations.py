"""Attempts as chat messages, in the wording that a format asks for."""

from functools import lru_cache
from typing import Any

import msgspec

from apps.gym.exporters.hermes import tools_block
from apps.gym.exporters.protocol import Attempt, Options
from apps.gym.loadable import holds_only_exact
from apps.gym.traces.messages import (
    ArgumentsAs,
    Dropped,
    Message,
    completion_messages,
    nested_tools,
    offered_tools,
    prompt_messages,
)


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """`completion` begins with the first message after the prompt and ends with the model's last turn."""

    prompt: list[Message]
    completion: list[Message]
    tools: list[dict[str, Any]]


def read_conversation(attempt: Attempt, options: Options, *, silent_turns: bool = False) -> Conversation:
    """The attempt as it went, before reasoning and tools are put where the trainer wants them. Raises Dropped."""
    arguments: ArgumentsAs = "object" if options.numbers == "any" else "exact_object"
    if options.arguments == "text":
        arguments = "any_text" if options.malformed == "text" else "text"
    tools = nested_tools(offered_tools(attempt.events, attempt.task))
    if options.numbers == "exact" and options.tools == "column" and not _are_loaded_exactly(msgspec.json.encode(tools)):
        raise Dropped("inexact_numbers")
    return Conversation(
        prompt=prompt_messages(attempt.events, arguments=arguments),
        completion=completion_messages(attempt.events, arguments=arguments, silent_turns=silent_turns),
        tools=tools,
    )


@lru_cache(maxsize=64)
def _are_loaded_exactly(tools: bytes) -> bool:
    """Remembered, since thousands of attempts have the same tools."""
    return holds_only_exact(msgspec.json.decode(tools))


def worded(conversation: Conversation, options: Options) -> Conversation:
    """Reasoning where `options.reasoning` wants it, and tools in the system message where `options.tools` says so."""
    prompt = [_with_reasoning(message, options) for message in conversation.prompt]
    if options.tools == "system" and conversation.tools:
        prompt = _with_tools_in_system(prompt, conversation.tools)
    return Conversation(
        prompt=prompt,
        completion=[_with_reasoning(message, options) for message in conversation.completion],
        tools=conversation.tools if options.tools in {"column", "text"} else [],
    )


def attempt_conversation(attempt: Attempt, options: Options, *, silent_turns: bool = False) -> Conversation:
    return worded(read_conversation(attempt, options, silent_turns=silent_turns), options)


def thought_text(reasoning: str) -> str:
    """Reasoning in front of what a turn says, as the templates of Qwen 3 and its kin write it."""
    return f"<think>\n{reasoning}\n</think>\n\n"


def _with_reasoning(message: Message, options: Options) -> Message:
    if options.reasoning == "field" or "reasoning_content" not in message:
        return message
    message = dict(message)
    reasoning = message.pop("reasoning_content")
    if options.reasoning == "inline":
        message["content"] = thought_text(reasoning) + message["content"]
    return message


def _with_tools_in_system(prompt: list[Message], tools: list[dict[str, Any]]) -> list[Message]:
    block = tools_block(tools)
    if prompt and prompt[0]["role"] == "system":
        text = prompt[0]["content"]
        return [{"role": "system", "content": f"{text}\n\n{block}" if text else block}, *prompt[1:]]
    return [{"role": "system", "content": block}, *prompt]
