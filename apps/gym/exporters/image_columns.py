"""Images of conversations, as trainers load them: in a column beside the messages, or as parts of the messages."""

from itertools import groupby
from typing import Any

from apps.gym.exporters.protocol import Options, Row
from apps.gym.image_data import is_data_url
from apps.gym.traces.chat_turns import IMAGES_FOLLOW
from apps.gym.traces.items import join_parts
from apps.gym.traces.messages import Message
from apps.gym.trainability import Dropped

COLUMN = ("dropped", "column")
PLACEHOLDER = "<image>"
"""Marks the place of an image in a text, for verl and LLaMA-Factory."""


def with_parts(options: Options, **sides: list[Message]) -> Row:
    """Return lists of messages by column, and the images in order.

    In rows with images, the content of each message is a list, in which a part of the type `image` marks each place.
    Images of tools follow in a message of the user, because TRL fills no places in results.
    """
    sides = {side: move_tool_images(messages) for side, messages in sides.items()}
    images = _images(options, sides)
    if images is None:
        return dict(sides)
    if images:
        sides = {side: [_as_parts(message) for message in messages] for side, messages in sides.items()}
    return {**sides, "images": images}


def with_placeholders(options: Options, messages: list[Message]) -> tuple[list[Message], list[str] | None]:
    """Return messages with `<image>` in the texts, and the images in order; None if the format has no column for them.

    Raises Dropped if a text has `<image>` itself: the trainer would take it for a place.
    """
    images = _images(options, {"messages": messages})
    if images is None:
        return messages, None
    if any(PLACEHOLDER in part["text"] for message in messages for part in _parts(message) if part["type"] == "text"):
        raise Dropped("image_placeholder_in_text")
    return [{**message, "content": _as_text(message)} for message in messages], images


def _images(options: Options, sides: dict[str, list[Message]]) -> list[str] | None:
    """Return the images in the order of the messages, or None without a column. Raises Dropped for remote ones."""
    if options.images != "column":
        return None
    found = [
        part["image"]
        for messages in sides.values()
        for message in messages
        for part in _parts(message)
        if part["type"] == "image"
    ]
    if not all(map(is_data_url, found)):
        raise Dropped("remote_image")
    return found


def move_tool_images(messages: list[Message]) -> list[Message]:
    """Return the messages, in which the images of a turn's results follow the results in a message of the user."""
    written: list[Message] = []
    for is_tool, run in groupby(messages, lambda message: message["role"] == "tool"):
        said = list(run)
        shown = [part for message in said for part in _parts(message) if is_tool and part["type"] == "image"]
        written += [{**message, "content": _text_only(message)} for message in said] if shown else said
        written += [{"role": "user", "content": shown}] if shown else []
    return written


def _text_only(message: Message) -> str:
    texts = [part["text"] for part in _parts(message) if part["type"] == "text"]
    return join_parts(texts, by_model=False) or IMAGES_FOLLOW


def refuse_images(messages: list[Message]) -> None:
    """Raise Dropped if a completion has images, for trainers that take images only in prompts."""
    if any(part["type"] == "image" for message in messages for part in _parts(message)):
        raise Dropped("image_in_completion")


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _as_parts(message: Message) -> Message:
    parts = [{"type": "image"} if part["type"] == "image" else part for part in _parts(message)]
    return {**message, "content": parts}


def _as_text(message: Message) -> str:
    texts = [PLACEHOLDER if part["type"] == "image" else part["text"] for part in _parts(message)]
    return join_parts(texts, by_model=False)
