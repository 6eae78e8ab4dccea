"""Conversation items: the OpenAI Responses shapes, kept as plain JSON objects so that no unknown field is lost."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Literal, NoReturn, TypedDict

import orjson

Item = dict[str, Any]
"""One Responses item: `message`, `reasoning`, `function_call`, `function_call_output`, or an unknown type."""

Tool = dict[str, Any]
"""A flat Responses tool: `{"type": "function", "name", "description", "parameters", "strict"}`."""

TaskRow = dict[str, Any]
"""A task row: `{"responses_create_params": {...}, ...verifier fields}` (NeMo Gym row format)."""


TEXT_SEPARATOR = "\n\n"
"""Separator of the text items of a turn when they are joined into the single text of a chat message."""
_LONG_INTEGER = re.compile(r"\d{19}")


class TokenUsage(TypedDict, total=False):
    """Token counts of one reply, or summed over a rollout.

    `input_tokens` includes `cached_tokens` (read from a cache) and `cache_write_tokens` (written to it).
    `output_tokens` includes `reasoning_tokens`.
    """

    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cached_tokens: int
    cache_write_tokens: int


def message(role: Literal["user", "assistant", "system", "developer"], text: str) -> Item:
    return {"type": "message", "role": role, "content": text}


def item_type(item: Item) -> str:
    """Return the type of the item. An item with a role and no type is a message, as in the Responses API."""
    kind = item.get("type")
    if isinstance(kind, str):
        return kind
    return "message" if "role" in item else "unknown"


def function_calls(items: list[Item]) -> list[Item]:
    return [item for item in items if item.get("type") == "function_call"]


def call_arguments(call: Item) -> dict[str, Any] | None:
    """Return the arguments of a call, {} for an empty text, or None if they are not a JSON object."""
    arguments = call.get("arguments") or {}
    try:
        parsed = parse_json(arguments.strip() or "{}") if isinstance(arguments, str) else arguments
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


UNPARSED = "gymweb_unparsed_arguments"
"""Key of an object that holds arguments which are not a JSON object, as text: servers accept only objects."""


def valid_arguments(given: Any) -> str:
    """Return arguments as the text of a JSON object, for servers that parse the history. Valid text is unchanged.

    Other text becomes the value of UNPARSED, so that the model reads what it wrote. Empty text means no arguments.
    """
    text = given if isinstance(given, str) else encode_json(given or {}).decode()
    if not text.strip():
        return "{}"
    return text if isinstance(read_json(text), dict) else encode_json({UNPARSED: text}).decode()


def argument_texts(call: Item) -> Iterator[str]:
    """Yield the texts in the arguments of a call, also inside lists and objects."""
    return (value for value in inner_values(call_arguments(call)) if isinstance(value, str))


def inner_values(value: Any) -> Iterator[Any]:
    """Yield the texts, numbers and booleans in a JSON value, in order."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += reversed(list(value.values()) if isinstance(value, dict) else value)
        elif value is not None:
            yield value


def answered_calls(items: list[Item]) -> list[tuple[str, dict[str, Any]]]:
    """Return name and arguments of each call with an output, in order. Skip calls without valid arguments."""
    answered = {item.get("call_id") for item in items if item.get("type") == "function_call_output"}
    calls = [call for call in function_calls(items) if call.get("call_id") in answered]
    named = ((str(call.get("name")), call_arguments(call)) for call in calls)
    return [(name, arguments) for name, arguments in named if arguments is not None]


def is_by_model(item: Item) -> bool:
    """Return True if a model wrote the item: reasoning, text or call."""
    kind = item.get("type")
    if kind in ("reasoning", "function_call"):
        return True
    return item.get("role") == "assistant" and (kind == "message" or not isinstance(kind, str))


def join_parts(texts: Iterable[str], *, by_model: bool) -> str:
    """Join the texts of the content parts of one item. Empty texts are skipped.

    Parts that a model wrote are one continuous text. Parts of other items are joined by newlines, as vLLM does.
    """
    return ("" if by_model else "\n").join(filter(None, texts))


def text_of(item: Item) -> str:
    """Return the text of a message or reasoning item. Parts without text are skipped."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    if len(parts) == 1 and isinstance(parts[0], dict):
        return parts[0].get("text") or parts[0].get("refusal") or ""
    if not parts and item.get("type") == "reasoning":
        parts = item.get("summary") or []
    texts = [part.get("text") or part.get("refusal") or "" for part in parts if isinstance(part, dict)]
    if len(texts) < 2:
        return texts[0] if texts else ""
    return join_parts(texts, by_model=is_by_model(item))


def output_text(output: str | list[dict[str, Any]]) -> str:
    """Return the text of a tool's output. Images are skipped."""
    return output if isinstance(output, str) else text_of({"content": output})


def assistant_text(items: list[Item]) -> str:
    """Return the texts of all assistant messages, joined by newlines. Verifiers read this text."""
    return "\n".join(filter(None, [text_of(item) for item in items if _is_assistant_message(item)]))


def _is_assistant_message(item: Item) -> bool:
    return item.get("role") == "assistant" and item_type(item) == "message"


def last_assistant_text(items: list[Item]) -> str:
    """Return the text of the last assistant message, or an empty string."""
    return next((assistant_text([item]) for item in reversed(items) if _is_assistant_message(item)), "")


def input_items(row: TaskRow) -> list[Item]:
    """Return the prompt of the row as items. A prompt that is a string becomes one user message.

    The list is empty for tasks whose prompt comes from the environment or the agent.
    """
    prompt = row["responses_create_params"].get("input", [])
    if isinstance(prompt, str):
        return [message("user", prompt)] if prompt.strip() else []
    return list(prompt)


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Integers of any size stay exact. Raises ValueError."""
    value = orjson.loads(text)  # rejects NaN and lone surrogates, but turns integers beyond 64 bits into floats
    try:
        return json.loads(text) if _LONG_INTEGER.search(text) else value
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def read_json(text: str | bytes, default: Any = None) -> Any:
    """Return the value of a JSON text, or the default if it is invalid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return default


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def flat_tool(tool: Any) -> Any:
    """Return a tool in flat form. Chat Completions nests its fields under `function`."""
    nested = tool.get("function") if isinstance(tool, dict) else None
    return {"type": "function", **nested} if isinstance(nested, dict) else tool


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and Infinity. Pass it to `json.loads` as `parse_constant`; the default accepts them."""
    raise ValueError(f"{name} is not JSON")


def finite_float(text: str) -> float:
    """Parse a finite float. 1e400 is valid JSON, but would be read as infinity and written as null or invalid JSON."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is larger than any number that can be written")
    return number


def encode_json(value: object) -> bytes:
    """Return JSON for any value from a model or custom code, even if `dump_json` rejects it."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, default=str).encode()


def dump_json(value: object) -> str:
    """Return JSON. Raises TypeError for lone surrogates, integers beyond 64 bits and types without a JSON form."""
    return orjson.dumps(value).decode()


Named = tuple[str, str]
"""A call id and the name of a tool."""


def pair_results(calls: Sequence[Named], results: Sequence[Named]) -> dict[int, int]:
    """Return the position of the call of each result; results of other calls are missing.

    A result belongs to the first unanswered call with its id and tool, else to the first one with its id.
    """
    paired: dict[int, int] = {}
    unanswered = list(range(len(calls)))
    for by_tool in (True, False):
        for number, (call_id, tool) in enumerate(results):
            if number in paired:
                continue
            wanted = (one for one in unanswered if calls[one][0] == call_id and (not by_tool or calls[one][1] == tool))
            if (found := next(wanted, None)) is not None:
                paired[number] = found
                unanswered.remove(found)
    return paired


def unique_ids(ids: Sequence[str]) -> list[str]:
    """Return the call ids of one turn. Empty and repeated ids get a number."""
    unique: list[str] = []
    for place, call_id in enumerate(ids, start=1):
        if call_id and call_id not in unique:
            unique.append(call_id)
            continue
        numbered = (f"{call_id or 'call'}_{number}" for number in count(place))
        unique.append(next(one for one in numbered if one not in ids and one not in unique))
    return unique


class ToolNames:
    """The tools of the calls so far by call id. Of the calls of a turn with one id, each result takes the next."""

    def __init__(self) -> None:
        self._names: dict[str, list[str | None]] = {}

    def add(self, turn: list[Item]) -> None:
        """Add the calls of a turn. They replace earlier calls with their ids."""
        calls = named_calls(turn)
        self._names |= {call_id: [name for own, name in calls if own == call_id] for call_id, _ in calls}

    def take(self, call_id: str) -> str | None:
        """Return the tool of the next result with this id; None if no call has it."""
        names = self._names.get(call_id, [None])
        return names.pop(0) if len(names) > 1 else names[0]


def named_calls(items: list[Item]) -> list[Named]:
    """Return the id and the tool of each call."""
    return [(str(call.get("call_id", "")), str(call.get("name", ""))) for call in function_calls(items)]
