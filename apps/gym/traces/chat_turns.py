"""Convert Responses items to chat messages and back, with pure functions.

Items contain more than chat messages: ids, statuses, annotations, encrypted reasoning and training fields are lost.
Apart from that, a round trip assigns new ids, turns `developer` into `system`, moves images of tool results to a user
message, joins the texts of one turn before its calls, and drops empty texts.
"""

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Literal, NamedTuple

from apps.gym.errors import PolicyError
from apps.gym.traces.items import (
    TEXT_SEPARATOR,
    Item,
    as_object,
    dump_json,
    is_by_model,
    item_type,
    join_parts,
    text_of,
    valid_arguments,
)
from apps.gym.traces.known_ids import KnownIds

Message = dict[str, Any]

Reasoning = Literal["field", "text", "dropped"]
"""Location of reasoning in a chat message: in `reasoning_content`, between `<think>` tags, or nowhere."""

CallContent = Literal["empty", "null", "omitted"]
"""Content of a message that has calls and no text: an empty text, null, or no such key."""


class HistoryForm(NamedTuple):
    """How servers take the turns of a model in the history.

    With `valid_arguments`, arguments that are not a JSON object are sent inside one. With `both_fields`, reasoning is
    in `reasoning_content` and `reasoning`, because versions of vLLM read only one of them.
    """

    call_content: CallContent = "null"
    valid_arguments: bool = False
    both_fields: bool = False


AS_WRITTEN = HistoryForm()

Facts = tuple[bool, dict[str, Any]]
"""Facts about the fields of a request: whether the server may use a grammar, and the sampling as it was sent."""

IMAGES_FOLLOW = "The result has only images. They follow."
"""Placeholder text of a tool result that has only images. A user message after it contains the images."""

_MESSAGE_KEYS = {"role", "content"}
_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
_THOUGHT_KEYS = ("text", "thinking", "summary", "content")
_THOUGHT = re.compile(r"\s*<think>(?P<thought>.*?)</think>\n{0,2}", re.DOTALL)


# ── items → messages ─────────────────────────────────────────────────────────────────────────────────────────────────


def chat_messages(
    items: Iterable[Item],
    *,
    instructions: object = None,
    reasoning: Reasoning = "field",
    form: HistoryForm = AS_WRITTEN,
) -> list[Message]:
    """Return items as chat messages.

    Consecutive reasoning, text and calls form one assistant message, a turn.

    Raises PolicyError for an item that cannot be a chat message.
    """
    messages: list[Message] = []
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    for by_model, run in groupby(items, is_by_model):
        if by_model:
            messages.append(_assistant_message(list(run), reasoning, form))
        else:
            messages += _other_messages(run)
    return messages


class SentMessages:
    """The chat messages of a conversation that grows between calls. Each item is converted once, not at each call.

    Also keeps the fields of the request beside the messages, which calls of a conversation usually share, facts about
    them, and the token IDs of the last call.
    """

    __slots__ = ("_facts", "_fields", "_items", "_messages", "_sampling", "_tools", "known_ids")

    def __init__(self) -> None:
        self.known_ids = KnownIds()
        self._items = 0
        self._messages: list[Message] = []
        self._fields: dict[str, Any] = {}
        self._tools: object = None
        self._sampling: object = None
        self._facts: Facts | None = None

    def keep_fields(self, tools: object, sampling: object, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the fields of the previous call if they were made from the same objects, otherwise new ones."""
        if tools is not self._tools or sampling is not self._sampling:
            self._fields, self._tools, self._sampling, self._facts = make(), tools, sampling, None
        return self._fields

    def keep_facts(self, body: dict[str, Any], make: Callable[[], Facts]) -> Facts:
        """Return what `make` reads in fields of a request, once for as long as they are kept."""
        if body is not self._fields:
            return make()
        if self._facts is None:
            self._facts = make()
        return self._facts

    def extend(
        self, items: list[Item], *, instructions: object, reasoning: Reasoning, form: HistoryForm = AS_WRITTEN
    ) -> list[Message]:
        """Return the messages of `items`, which begin with the items of the previous call.

        Raises like `chat_messages`.
        """
        rest = chat_messages(
            items[self._items :],
            instructions=None if self._items else instructions,
            reasoning=reasoning,
            form=form,
        )
        messages = self._messages + rest
        # A turn is kept only when it is complete: further items of the model would change its message.
        if items and not is_by_model(items[-1]):
            self._items, self._messages = len(items), messages
        return messages


def _other_messages(items: Iterable[Item]) -> list[Message]:
    """Return the messages of items that the model did not write.

    Many servers accept only text in the results of tools, so their images follow in a message of the user.
    """
    messages: list[Message] = []
    shown: list[Any] = []
    for item in items:
        kind = item_type(item)
        if kind == "function_call_output":
            call_id = item.get("call_id", "")
            content: Any = item.get("output", "")
            images: list[Any] = []
            if not isinstance(content, str):
                content, images = _split_images(_content(content, _chat_part))
            messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
            if images:
                shown += [{"type": "text", "text": f"Images of the result of {call_id}:"}, *images]
            continue
        if kind != "message":
            raise PolicyError(f"An item of type {kind!r} cannot be sent over the Chat Completions wire.").permanent()
        if shown:
            messages.append({"role": "user", "content": shown})
            shown = []
        messages.append(_plain_message(item))
    if shown:
        messages.append({"role": "user", "content": shown})
    return messages


def _split_images(content: Any) -> tuple[Any, list[Any]]:
    """Return the content of a tool's result without its images, and the images."""
    if not isinstance(content, list):
        return content, []
    images = [part for part in content if isinstance(part, dict) and part.get("type") == "image_url"]
    return [part for part in content if part not in images] or IMAGES_FOLLOW, images


def _plain_message(item: Item) -> Message:
    if item.keys() == _MESSAGE_KEYS and item["role"] != "developer" and isinstance(item["content"], str):
        return item  # is a chat message already, which all rollouts of a task share
    # Chat templates of open models do not know the role developer, which means the same as system.
    role = "system" if item["role"] == "developer" else item["role"]
    named = {"name": item["name"]} if item.get("name") else {}
    return {"role": role, "content": _content(item.get("content"), _chat_part), **named}


def _assistant_message(turn: list[Item], reasoning: Reasoning, form: HistoryForm) -> Message:
    contents, thoughts, calls = [], [], []
    for item in turn:
        kind = item_type(item)
        if kind == "reasoning":
            thoughts.append(text_of(item))
        elif kind == "function_call":
            calls.append(_chat_call(item, form))
        else:
            contents.append(item.get("content"))
    content = _assistant_content(contents) if contents else ""
    message: Message = {"role": "assistant", "content": content}
    thought = TEXT_SEPARATOR.join(filter(None, thoughts)) if thoughts else ""
    if thought and reasoning == "field":
        message["reasoning_content"] = thought
        if form.both_fields:
            message["reasoning"] = thought
    elif thought and reasoning == "text":
        message["content"] = _think(thought, message["content"])
    if calls:
        message["tool_calls"] = calls
        if not message["content"]:
            message["content"] = None if form.call_content == "null" else ""
            if form.call_content == "omitted":
                del message["content"]
    return message


def _chat_call(item: Item, form: HistoryForm) -> dict[str, Any]:
    arguments = item.get("arguments")
    written = valid_arguments(arguments) if form.valid_arguments else arguments or "{}"
    return {
        "id": item.get("call_id") or item.get("id") or "",
        "type": "function",
        "function": {"name": item.get("name", ""), "arguments": written},
    }


def _assistant_content(contents: list[Any]) -> Any:
    """Return a string if the turn has only text, otherwise a list of parts, for example with a refusal."""
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    parts: list[Any] = []
    texts: list[str] = []
    for content in contents:
        own = _content(content, _chat_part)
        own = [{"type": "text", "text": own}] if isinstance(own, str) else own
        parts += own
        texts.append(join_parts((part.get("text", "") for part in own if isinstance(part, dict)), by_model=True))
    if all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
        return TEXT_SEPARATOR.join(text for text in texts if text)
    return parts


def _content(content: Any, convert: Callable[[Any], Any]) -> Any:
    """Return text unchanged, and parts converted."""
    if isinstance(content, list):
        return [convert(part) for part in content]
    return "" if content is None else content


def _chat_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text", "")}
    if kind == "input_image":
        if not part.get("image_url"):
            raise PolicyError(
                "An image without an `image_url` cannot be sent over the Chat Completions wire."
            ).permanent()
        image = {"url": part["image_url"]}
        return {"type": "image_url", "image_url": image | ({"detail": part["detail"]} if part.get("detail") else {})}
    if kind == "input_file":
        return {"type": "file", "file": {k: v for k, v in part.items() if k != "type" and v is not None}}
    return part


def _think(thought: str, content: Any) -> Any:
    """Return the content with the thought before it, as written by models without a field for reasoning."""
    opening = f"<think>\n{thought}\n</think>\n\n"
    if isinstance(content, list):
        return [{"type": "text", "text": opening}, *content]
    return opening + (content or "")


# ── messages → items ─────────────────────────────────────────────────────────────────────────────────────────────────


def chat_items(messages: Iterable[Message], *, reasoning: Reasoning = "field") -> list[Item]:
    """Return chat messages as items, with ids from their positions. A tool's result is a function_call_output."""
    items: list[Item] = []
    unanswered: dict[str, None] = {}
    for number, message in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            turn = assistant_items(message, number, reasoning=reasoning)
            unanswered = {call["call_id"]: None for call in turn if call["type"] == "function_call"}
            items += turn
        elif role == "tool":
            output = _content(message.get("content"), _item_part)
            # A result without an id answers the first open call.
            call_id = message.get("tool_call_id") or next(iter(unanswered), "")
            unanswered.pop(call_id, None)
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
        else:
            named = {"name": message["name"]} if message.get("name") else {}
            items.append(
                {"type": "message", "role": role, "content": _content(message.get("content"), _item_part), **named}
            )
    return items


def assistant_items(message: Message, name: object, *, reasoning: Reasoning = "field") -> list[Item]:
    """Return the items of one turn: its reasoning, text and calls. `name` is part of their ids."""
    thought, content = _split_reasoning(message, reasoning)
    items: list[Item] = []
    if thought:
        summary = [{"type": "summary_text", "text": thought}]
        items.append({"type": "reasoning", "id": f"rs_{name}", "summary": summary})
    parts = _output_parts(content, message)
    if parts:
        items.append(message_item(name, parts))
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        arguments = function.get("arguments")
        # Some servers return an object instead of text.
        written = arguments if isinstance(arguments, str) else dump_json(arguments or {})
        items.append(call_item(name, number, call_id=call.get("id"), tool=function.get("name", ""), arguments=written))
    return items


def message_item(name: object, parts: list[dict[str, Any]]) -> Item:
    """Return the message of a turn. `name` is part of its id."""
    return {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed", "content": parts}


def call_item(name: object, number: int, *, call_id: str | None, tool: str, arguments: str) -> Item:
    """Return a call of a turn. `name` and `number` are part of its ids."""
    return {
        "type": "function_call",
        "id": f"fc_{name}_{number}",
        "call_id": call_id or f"call_{name}_{number}",
        "name": tool,
        "arguments": arguments,
        "status": "completed",
    }


def _split_reasoning(message: Message, reasoning: Reasoning) -> tuple[str, Any]:
    """Return the thought and the rest of the content."""
    content = message.get("content")
    for fields in (message, as_object(message.get("provider_specific_fields"))):  # the latter of LiteLLM
        for key in _REASONING_KEYS:
            if (given := fields.get(key)) and (text := _reasoning_text(given)):
                return text, content
    if isinstance(content, list):
        thinking = [part for part in content if isinstance(part, dict) and part.get("type") == "thinking"]
        if text := _reasoning_text(thinking):
            return text, content
    if reasoning != "text":
        return "", content
    if isinstance(content, str):
        return _split_thought(content)
    if isinstance(content, list) and content:
        first, *others = content
        if isinstance(first, dict) and first.get("type") == "text" and isinstance(first.get("text"), str):
            thought, rest = _split_thought(first["text"])
            return thought, [{**first, "text": rest}, *others]
    return "", content


def _reasoning_text(given: Any) -> str:
    """Return the text of a thought given as a text, an object, or a list of these."""
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        return join_parts(map(_reasoning_text, given), by_model=True)
    if isinstance(given, dict):
        return next(filter(None, (_reasoning_text(given.get(key)) for key in _THOUGHT_KEYS)), "")
    return ""


def _split_thought(content: str) -> tuple[str, str]:
    found = _THOUGHT.match(content)
    if found:
        return found["thought"].strip("\n"), content[found.end() :]
    opening, opened, unfinished = content.partition("<think>")
    if opened and not opening.strip() and "</think>" not in unfinished:
        # Cut off during reasoning: this text is not part of the reply.
        return unfinished.strip("\n"), ""
    # If the template opens the tag in the prompt, the reply only has its end.
    before, end, after = content.partition("</think>")
    if not end or "<think>" in before:
        return "", content
    return before.strip("\n"), re.sub(r"\A\n{1,2}", "", after)


def _output_parts(content: Any, message: Message) -> list[Message]:
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    annotations = [_flat_annotation(one) for one in message.get("annotations") or []]
    parts: list[Message] = []
    for part in given:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if isinstance(part, dict) else None
        if kind == "refusal" and part.get("refusal"):
            parts.append({"type": "refusal", "refusal": part["refusal"]})
        elif isinstance(text, str) and text:
            parts.append({"type": "output_text", "text": text, "annotations": annotations})
    if message.get("refusal"):
        parts.append({"type": "refusal", "refusal": message["refusal"]})
    return parts


def _flat_annotation(given: Any) -> Any:
    """Return an annotation in flat form. Chat nests the fields of a citation under its type."""
    kind = given.get("type") if isinstance(given, dict) else None
    nested = given.get(kind) if isinstance(kind, str) else None
    return {"type": kind, **nested} if isinstance(nested, dict) else given


def _item_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {"type": "input_text", "text": part.get("text", "")}
    if kind == "image_url":
        image = part.get("image_url") or {}
        image = {"url": image} if isinstance(image, str) else image
        detail = {"detail": image["detail"]} if image.get("detail") else {}
        return {"type": "input_image", "image_url": image.get("url", ""), **detail}
    if kind == "file":
        return {"type": "input_file", **(part.get("file") or {})}
    return part
