"""Put the images of a row into its messages, as the datasets of TRL, verl and LLaMA-Factory mark them."""

from collections.abc import Iterator
from typing import Any

from apps.gym.image_data import is_data_url, is_path
from apps.gym.redaction.shortening import cut

PLACEHOLDER = "<image>"
_TEXT_PARTS = ("text", "input_text")


def looks_like_images(value: Any) -> bool:
    """Return True for the address of an image, or a list of these."""
    addresses = value if isinstance(value, list) else [value]
    return bool(addresses) and all(isinstance(one, str) and _is_image(one) for one in addresses)


def _is_image(address: str) -> bool:
    return is_data_url(address) or is_path(address) or address.startswith(("https://", "http://"))


def read_addresses(value: Any) -> list[str]:
    """Return the addresses in the cell of an image column. Raises ValueError."""
    addresses = value if isinstance(value, list) else [] if value in (None, "") else [value]
    for address in addresses:
        if not isinstance(address, str):
            raise ValueError("must hold images: data URLs, URLs, or files of a Parquet file or ZIP archive")
        if not address.startswith(("data:", "https://", "http://")):
            raise ValueError(
                f"names the file {cut(address, 100)}, which was not uploaded. "
                "Upload a ZIP archive with the rows and the images, or Parquet with image bytes"
            )
    return addresses


def place_images(messages: list[dict[str, Any]], addresses: list[str]) -> list[dict[str, Any]]:
    """Return the messages with each image at its place, as parts of the Responses API.

    Places are parts of the type `image`; without any, the placeholders in the texts; without any, the start of the
    first user message. Raises ValueError if there are more or fewer places than images.
    """
    in_parts = sum(_is_place(part) for message in messages for part in _parts(message))
    in_texts = 0 if in_parts else sum(_text(message).count(PLACEHOLDER) for message in messages)
    if not addresses and not in_parts:
        return messages
    if places := in_parts or in_texts:
        if places != len(addresses):
            raise ValueError(f"holds {len(addresses)} images, but the prompt has places for {places}")
        left = iter(addresses)
        return [_placed(message, left, by_text=not in_parts) for message in messages]
    first = next((at for at, message in enumerate(messages) if message.get("role") == "user"), None)
    if first is None:
        raise ValueError("holds images, but the prompt has no user message")
    opened = {**messages[first], "content": [*map(_image, addresses), *_as_parts(messages[first])]}
    return [*messages[:first], opened, *messages[first + 1 :]]


def _placed(message: dict[str, Any], left: Iterator[str], *, by_text: bool) -> dict[str, Any]:
    is_affected = PLACEHOLDER in _text(message) if by_text else any(map(_is_place, _parts(message)))
    if not is_affected:
        return message
    parts: list[Any] = []
    for part in _as_parts(message):
        if by_text and _is_text(part):
            parts += _split(part["text"], left)
        else:
            parts.append(_image(next(left)) if not by_text and _is_place(part) else part)
    return {**message, "content": parts}


def _split(text: str, left: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield the text around each placeholder, and the images. The line feed after an image is not part of the text."""
    opening, *others = text.split(PLACEHOLDER)
    if opening:
        yield _written(opening)
    for following in others:
        yield _image(next(left))
        if said := following.removeprefix("\n"):
            yield _written(said)


def _parts(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _as_parts(message: dict[str, Any]) -> list[Any]:
    """Return the content as parts. Columnar files give each part every key that any part has; nulls are left out."""
    content = message.get("content")
    if isinstance(content, str):
        return [_written(content)] if content else []
    return [
        _written(part["text"]) if _is_text(part) else {key: value for key, value in part.items() if value is not None}
        for part in _parts(message)
        if isinstance(part, dict)
    ]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "".join(part["text"] for part in _parts(message) if _is_text(part))


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str)


def _is_place(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image"


def _written(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _image(address: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": address}
