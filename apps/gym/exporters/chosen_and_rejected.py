"""Two attempts at a task, side by side: whole, or from the first action that differs after the same state.

For the latter both are walked message by message while they are the same. Call ids, which are random in every attempt,
are numbered instead, and reasoning is no action. An environment that answered differently to the same actions is
another state: what follows cannot be compared, and there is no pair.
"""

import json
from typing import Any

from apps.gym.exporters.protocol import Options, Preference
from apps.gym.exporters.training_conversations import Conversation, read_conversation, worded
from apps.gym.traces.courses import meaning_of
from apps.gym.traces.messages import Dropped, Message


def pair_conversations(pair: Preference, options: Options) -> tuple[Conversation, Conversation]:
    """Chosen and rejected, worded, with one prompt. Raises Dropped, also where they did not start from the same."""
    chosen, rejected = read_conversation(pair.chosen, options), read_conversation(pair.rejected, options)
    if chosen.prompt != rejected.prompt or chosen.tools != rejected.tools:
        raise Dropped("different_prompts")
    if options.level == "step":
        chosen, rejected = split_at_divergence(chosen, rejected)
    chosen, rejected = worded(chosen, options), worded(rejected, options)
    if _numbered(chosen) == _numbered(rejected):
        raise Dropped("identical_completions")
    return chosen, rejected


def split_at_divergence(chosen: Conversation, rejected: Conversation) -> tuple[Conversation, Conversation]:
    """Both with the shared way as prompt and one assistant message as completion; the prompt is the same in both.

    Reasoning of the shared way stays only where both thought the same: the other side never saw what one thought.
    Raises Dropped: `states_differ` where the environment's answers part first, `same_actions` where nothing does.
    """
    shared: list[Message] = []
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for good, bad in zip(chosen.completion, rejected.completion, strict=False):
        if _action(good, numbers[0]) == _action(bad, numbers[1]):
            shared.append(_without_other_thoughts(good, bad))
            continue
        if good["role"] != "assistant" or bad["role"] != "assistant":
            raise Dropped("states_differ")
        prompt = [*chosen.prompt, *shared]
        return (
            Conversation(prompt=prompt, completion=[good], tools=chosen.tools),
            Conversation(prompt=prompt, completion=[bad], tools=rejected.tools),
        )
    raise Dropped("same_actions")


def _numbered(conversation: Conversation) -> list[str]:
    numbers: dict[str, int] = {}
    return [_comparable(message, numbers) for message in conversation.completion]


def _action(message: Message, numbers: dict[str, int]) -> str:
    """What was done, whatever was thought."""
    return _comparable({key: value for key, value in message.items() if key != "reasoning_content"}, numbers)


def _comparable(message: Message, numbers: dict[str, int]) -> str:
    """Calls are numbered by first appearance, and compared by what their arguments mean, in whatever wording. As text,
    since 1 and 1.0 are equal in Python and other arguments here."""
    plain: dict[str, Any] = dict(message)
    if "tool_calls" in plain:
        plain["tool_calls"] = [
            {
                **call,
                "id": numbers.setdefault(call["id"], len(numbers)),
                "function": {**call["function"], "arguments": meaning_of(call["function"]["arguments"])},
            }
            for call in plain["tool_calls"]
        ]
    if "tool_call_id" in plain:
        plain["tool_call_id"] = numbers.setdefault(plain["tool_call_id"], len(numbers))
    return json.dumps(plain, sort_keys=True)


def _without_other_thoughts(message: Message, other: Message) -> Message:
    if message.get("reasoning_content") == other.get("reasoning_content"):
        return message
    return {key: value for key, value in message.items() if key != "reasoning_content"}
