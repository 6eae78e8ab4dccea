"""Attempts and tasks as chat messages, rendered as a format requires."""

import json
from functools import lru_cache
from itertools import groupby, takewhile
from typing import Any, Literal

import msgspec

from apps.gym.exporters.protocol import MANY, Attempt, Feature, Options, Preference, Row, TaskPrompt
from apps.gym.exporters.split_calls import split_calls
from apps.gym.loadable import holds_only_exact
from apps.gym.tasks.expected_answers import ANSWER_FIELDS
from apps.gym.traces.authorship import FOREIGN
from apps.gym.traces.courses import canonical_arguments
from apps.gym.traces.events import ModelCall
from apps.gym.traces.items import TaskRow, Tool, input_items, message
from apps.gym.traces.messages import (
    AUTHOR,
    ArgumentsAs,
    Message,
    completion_messages,
    item_messages,
    nested_tools,
    offered_tools,
    prompt_messages,
)
from apps.gym.trainability import Dropped


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as messages.

    `completion` begins with the first message after the prompt and ends with the model's last turn. Three fields list
    turns by their position, counted from the end: `resent` are the turns that a captured client sent, `foreign` the
    resent turns that the model did not write, and `repeated` the turns that another row trains.
    """

    prompt: list[Message]
    completion: list[Message]
    tools: list[dict[str, Any]]
    resent: frozenset[int] = frozenset()
    foreign: frozenset[int] = frozenset()
    repeated: frozenset[int] = frozenset()

    def is_in(self, positions: frozenset[int], place: int) -> bool:
        """Return True if one of these positions is that of the message `place` of prompt and completion."""
        return len(self.prompt) + len(self.completion) - place in positions


Loss = Literal["all", "completion", "marked"]
"""Which turns the loss of a format covers: all, only turns of the completion, or all without a mark."""


def read_conversation(
    attempt: Attempt,
    options: Options,
    *,
    silent_turns: bool = False,
    loss: Loss = "all",
    offered: list[Tool] | None = None,
) -> Conversation:
    """Return the attempt as it was, before reasoning and tools are moved for the trainer.

    `offered` replaces the tools of the attempt, for a row of one turn.

    Raises Dropped, also if the loss covers a turn that the model did not write, unless the options keep these.
    """
    arguments: ArgumentsAs = "object" if options.numbers == "any" else "exact_object"
    if options.arguments == "text":
        arguments = "any_text" if options.malformed == "text" else "text"
    tools = nested_tools(offered_tools(attempt.events, attempt.task) if offered is None else offered)
    if options.numbers == "exact" and options.tools == "column" and not _are_loaded_exactly(msgspec.json.encode(tools)):
        raise Dropped("inexact_numbers")
    images = options.images != "dropped"
    prompt = prompt_messages(attempt.events, arguments=arguments, images=images)
    completion = completion_messages(attempt.events, arguments=arguments, silent_turns=silent_turns, images=images)
    authors = [message.pop(AUTHOR, "") for message in reversed([*prompt, *completion])]
    resent = frozenset(place for place, author in enumerate(authors, start=1) if author)
    foreign = frozenset(place for place in resent if authors[place - 1] in FOREIGN)
    trained = {place for place in foreign if loss == "all" or (loss == "completion" and place <= len(completion))}
    if trained and options.injected == "dropped":
        raise Dropped("injected_turns")
    return Conversation(
        prompt=prompt,
        completion=completion,
        tools=tools,
        resent=resent,
        foreign=foreign,
        repeated=_find_repeated(attempt, completion, resent) if options.branches in MANY else frozenset(),
    )


def _find_repeated(attempt: Attempt, completion: list[Message], resent: frozenset[int]) -> frozenset[int]:
    """Return the positions of the turns that other rows train: turns of masked calls, and resent turns."""
    calls = [event for event in attempt.events if isinstance(event, ModelCall)]
    written = [number for number, call in enumerate(calls, start=1) if call.items]
    places = [len(completion) - place for place, one in enumerate(completion) if one["role"] == "assistant"]
    own = [place for place in places if place not in resent]
    return resent | {place for number, place in zip(written, own, strict=False) if number in attempt.masked}


@lru_cache(maxsize=64)
def _are_loaded_exactly(tools: bytes) -> bool:
    """Return True if the tools can be loaded exactly. Cached, because thousands of attempts have the same tools."""
    return holds_only_exact(msgspec.json.decode(tools))


def worded(conversation: Conversation, options: Options) -> Conversation:
    """Return the conversation with reasoning placed by `options.reasoning`, and tools by `options.tools`."""
    if options.parallel_calls == "split":
        conversation = _with_split_calls(conversation)
    prompt = [_with_reasoning(message, options) for message in conversation.prompt]
    if options.tools == "system" and conversation.tools:
        prompt = with_tools_in_system(prompt, conversation.tools)
    return Conversation(
        prompt=prompt,
        completion=[_with_reasoning(message, options) for message in conversation.completion],
        tools=conversation.tools if options.tools in {"column", "text"} else [],
        resent=conversation.resent,
        foreign=conversation.foreign,
        repeated=conversation.repeated,
    )


def attempt_conversation(
    attempt: Attempt,
    options: Options,
    *,
    silent_turns: bool = False,
    loss: Loss = "all",
    offered: list[Tool] | None = None,
) -> Conversation:
    """Return the attempt as the options want it. Raises Dropped, see `read_conversation`."""
    whole = read_conversation(attempt, options, silent_turns=silent_turns, loss=loss, offered=offered)
    return worded(whole, options)


def marked_messages(conversation: Conversation, key: str, value: int | bool) -> list[Message]:
    """Return all messages. Turns that the model did not write, or that another row trains, have `key` as `value`."""
    messages = [*conversation.prompt, *conversation.completion]
    unmarked = conversation.foreign | conversation.repeated
    return [
        {**message, key: value} if conversation.is_in(unmarked, place) else message
        for place, message in enumerate(messages)
    ]


def thought_text(reasoning: str) -> str:
    """Return reasoning as the chat templates of Qwen 3 and similar models write it, before the text of a turn."""
    return f"<think>\n{reasoning}\n</think>\n\n"


def _with_reasoning(message: Message, options: Options) -> Message:
    if options.reasoning == "field" or "reasoning_content" not in message:
        return message
    message = dict(message)
    reasoning = message.pop("reasoning_content")
    if options.reasoning == "inline":
        message["content"] = thought_text(reasoning) + message["content"]
    return message


def _with_split_calls(whole: Conversation) -> Conversation:
    messages = [*whole.prompt, *whole.completion]
    made = split_calls(messages)

    def moved(positions: frozenset[int]) -> frozenset[int]:
        return frozenset(len(made) - new for new, (_, old) in enumerate(made) if len(messages) - old in positions)

    return Conversation(
        prompt=[one for one, place in made if place < len(whole.prompt)],
        completion=[one for one, place in made if place >= len(whole.prompt)],
        tools=whole.tools,
        resent=moved(whole.resent),
        foreign=moved(whole.foreign),
        repeated=moved(whole.repeated),
    )


def with_tools_in_system(prompt: list[Message], tools: list[dict[str, Any]]) -> list[Message]:
    block = tools_block(tools)
    if prompt and prompt[0]["role"] == "system":
        text = prompt[0]["content"]
        return [{"role": "system", "content": f"{text}\n\n{block}" if text else block}, *prompt[1:]]
    return [{"role": "system", "content": block}, *prompt]


def pair_conversations(pair: Preference, options: Options) -> tuple[Conversation, Conversation]:
    """Return chosen and rejected as rendered, with the same prompt.

    Raises Dropped, for example for different prompts.
    """
    loss: Loss = "completion" if options.level == "trajectory" else "marked"
    chosen, rejected = (read_conversation(side, options, loss=loss) for side in (pair.chosen, pair.rejected))
    if chosen.prompt != rejected.prompt or chosen.tools != rejected.tools:
        raise Dropped("different_prompts")
    if options.level == "step":
        chosen, rejected = split_at_divergence(chosen, rejected)
        if options.injected == "dropped" and any(
            side.is_in(side.foreign, len(side.prompt)) for side in (chosen, rejected)
        ):
            raise Dropped("injected_turns")
    chosen, rejected = worded(chosen, options), worded(rejected, options)
    if _numbered(chosen) == _numbered(rejected):
        raise Dropped("identical_completions")
    return chosen, rejected


def split_at_divergence(chosen: Conversation, rejected: Conversation) -> tuple[Conversation, Conversation]:
    """Return both with the shared history as prompt and one assistant message as completion.

    Reasoning in the shared history is kept only where it is equal on both sides, because neither side saw the other's.
    Raises Dropped: `states_differ` if the environment's answers diverge first, `same_actions` if nothing diverges.
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
        place = len(chosen.prompt) + len(shared)
        return (
            Conversation(prompt=prompt, completion=[good], tools=chosen.tools, foreign=_last_foreign(chosen, place)),
            Conversation(prompt=prompt, completion=[bad], tools=rejected.tools, foreign=_last_foreign(rejected, place)),
        )
    raise Dropped("same_actions")


def _last_foreign(conversation: Conversation, place: int) -> frozenset[int]:
    """Return the position from the end of a last message that stood at `place`, if the model did not write it."""
    return frozenset({1} if conversation.is_in(conversation.foreign, place) else ())


def _numbered(conversation: Conversation) -> list[str]:
    numbers: dict[str, int] = {}
    return [_comparable(message, numbers) for message in conversation.completion]


def _action(message: Message, numbers: dict[str, int]) -> str:
    """Return a message as comparable text, without reasoning."""
    return _comparable({key: value for key, value in message.items() if key != "reasoning_content"}, numbers)


def _comparable(message: Message, numbers: dict[str, int]) -> str:
    """Return a message as comparable text.

    Calls are numbered by first appearance, and arguments are compared by value, not wording. As text, because 1 and 1.0
    are equal in Python but different as arguments.
    """
    plain: dict[str, Any] = dict(message)
    if "tool_calls" in plain:
        plain["tool_calls"] = [
            {
                **call,
                "id": numbers.setdefault(call["id"], len(numbers)),
                "function": {**call["function"], "arguments": canonical_arguments(call["function"]["arguments"])},
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


_NOT_FOR_THE_VERIFIER = {"responses_create_params", "agent_ref", "external_id", "split", "tags"}

OPENINGS = ("attempts", "task")

TASK_FEATURES: dict[str, Feature] = {
    "dataset": "string",
    "task_id": "string",
    "task_index": "int64",
    "attempts": "int64",
    "mean_reward": "float64",
    "solve_rate": "float64",
}


def opened_row(task: TaskPrompt, options: Options) -> TaskRow:
    """Return the row with the prompt that `options.opening` selects. Raises Dropped."""
    if options.opening == "task":
        return task.task
    if task.prompted_task is None:
        raise Dropped("prompt_template_gap")
    return task.prompted_task


def question_messages(task: TaskPrompt, options: Options) -> list[Message]:
    """Return the prompt, with instructions as the system message. Raises Dropped."""
    row = opened_row(task, options)
    instructions = row["responses_create_params"].get("instructions")
    opening = [message("system", instructions)] if isinstance(instructions, str) and instructions else []
    asked = item_messages([*opening, *input_items(row)], images=options.images != "dropped")
    if not any(one["role"] == "user" for one in asked):
        raise Dropped("no_user_message")
    return asked


def ground_truth(row: TaskRow) -> str:
    """Return the verifier's expected value as text.

    A column with a number in one row and text in another cannot load.

    This is the expected answer if the task has one of the usual fields, else all verifier fields as JSON.
    """
    found: Any = next((row[name] for name in ANSWER_FIELDS if row.get(name) is not None), None)
    if found is None:
        found = verifier_fields(row)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def verifier_fields(row: TaskRow) -> Row:
    """Return the fields of the row that only its verifier reads."""
    return {key: value for key, value in row.items() if key not in _NOT_FOR_THE_VERIFIER}


def task_columns(task: TaskPrompt) -> Row:
    """Return the columns of a task.

    Without attempts, `attempts` is 0 and the figures are 0.0, because columns must not be null.
    """
    group = task.group
    return {
        "dataset": task.dataset,
        "task_id": task.task_id,
        "task_index": task.task_index,
        "attempts": group.size if group else 0,
        "mean_reward": group.mean if group else 0.0,
        "solve_rate": group.solved / group.size if group and group.size else 0.0,
        **task.columns,
    }


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
    """Return the text that describes the tools in a system message. `tools` are nested, as in Chat Completions."""
    lines = (json.dumps(tool, ensure_ascii=False) for tool in tools)
    return "\n".join([_HEAD, *lines, _TAIL])


def call_text(call: dict[str, Any]) -> str:
    """Return one tool call as the model writes it."""
    function = call["function"]
    arguments = function["arguments"]
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {written}}}\n</tool_call>'


def turn_text(message: Message) -> str:
    """Return the text of an assistant message: its content, then its calls.

    Reasoning alone already ends with a blank line.
    """
    content: str = message["content"]
    calls = "\n".join(call_text(call) for call in message.get("tool_calls", ()))
    separate = content and calls and not content.endswith("</think>\n\n")
    return f"{content}\n{calls}" if separate else content + calls


def refuse_gaps(messages: list[Message]) -> None:
    """Raise Dropped if a later call of a turn has a result and an earlier one has none.

    For formats without call ids: the trainer would take the result for that of the earlier call.
    """
    for place, turn in enumerate(messages):
        results = [one["tool_call_id"] for one in takewhile(lambda one: one["role"] == "tool", messages[place + 1 :])]
        calls = [call.get("id") for call in turn.get("tool_calls", ())]
        if calls and results != calls[: len(results)]:
            raise Dropped("results_not_in_call_order")


def prompt_text(messages: list[Message]) -> str:
    """Return the messages as text, with the opening of the model's turn."""
    return _render(messages) + "<|im_start|>assistant\n"


def completion_text(messages: list[Message]) -> str:
    """Return the text after `prompt_text`, up to the end of the last turn without its final newline."""
    return _render(messages).removeprefix("<|im_start|>assistant\n").removesuffix("\n")


def _render(messages: list[Message]) -> str:
    refuse_gaps(messages)
    written: list[str] = []
    for is_answers, run in groupby(messages, lambda said: said["role"] == "tool"):
        if is_answers:
            # Answers of one turn share one user message.
            answers = (f"<tool_response>\n{said['content']}\n</tool_response>" for said in run)
            written.append(_framed("user", "\n".join(answers)))
        else:
            texts = (
                (said["role"], turn_text(said) if said["role"] == "assistant" else said["content"]) for said in run
            )
            written += [_framed(role, text) for role, text in texts]
    return "".join(written)


def _framed(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"
