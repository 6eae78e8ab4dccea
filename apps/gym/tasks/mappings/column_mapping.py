"""A column mapping assigns the columns of a row to the parts of a task. Applied, it returns a NeMo Gym row."""

from typing import Any, Literal

import msgspec

from apps.gym.redaction.shortening import cut
from apps.gym.request_refusals import Refusal
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.mappings.conversations import cut_demonstration, is_sharegpt, read_sharegpt
from apps.gym.tasks.mappings.extractors import ExtractorRefused, read_extractor
from apps.gym.tasks.mappings.placed_images import place_images, read_addresses
from apps.gym.tasks.mappings.templates import (
    MISSING,
    GapEmpty,
    TemplateRefused,
    fill_template,
    look_up,
    parse_template,
    pointer_of,
    template_paths,
)
from apps.gym.tasks.parameters import PARAMS
from apps.gym.traces.chat_turns import chat_items
from apps.gym.traces.items import dump_json, flat_tool

MAX_MAPPED_FIELDS = 100
_TEXT_LIMIT = 20_000


class MappingRefused(Refusal):
    """Raised for an invalid mapping. `argument` is the place in it, as a JSON Pointer without its first slash."""


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A column mapping. Paths are dotted, templates have placeholders in braces. Empty fields are not mapped."""

    input: str = ""
    """Path of the prompt: text, or a list of chat messages or Responses items."""
    context: str = ""
    """Path of a text that follows the prompt after an empty line, if present: for example an Alpaca row's `input`."""
    user: str = ""
    """Template of the user's message, instead of `input`."""
    system: str = ""
    """Template of a system message before the prompt. If it has only placeholders and all are empty, it is left out."""
    images: str = ""
    """Path of the images of the prompt: the address of one, or a list (placed_images.py)."""
    expected_answer: str = ""
    external_id: str = ""
    """Path, or a template of several columns. A row that lacks one of them has no id."""
    split: str = ""
    tags: str = ""
    tools: str = ""
    fields: dict[str, str] = {}
    """Additional fields of the task → paths, for its verifier."""
    extract: dict[str, str] = {}
    """Fields such as `expected_answer` → extractors (extractors.py). The whole cell also stays in its column."""
    rest: Literal["keep", "drop"] = "keep"
    """Whether columns that are not mapped are kept."""
    cut_answer: bool = False
    """If a conversation ends with an assistant message, cut it after the last user message. The text of the final
    message is the expected answer, unless there is one.
    """

    def path_of(self, name: str) -> str:
        """Return the path of the column of a field of the task."""
        return self.expected_answer if name == "expected_answer" else self.fields.get(name, "")

    @property
    def paths(self) -> list[str]:
        """Return the paths of all mapped columns. Columns of an id template also remain fields of their own."""
        own = [self.input, self.context, self.images, self.expected_answer, self.split, self.tags, self.tools]
        own += [] if is_template(self.external_id) else [self.external_id]
        own += [*self.fields.values(), *template_paths(self.user), *template_paths(self.system)]
        return [path for path in own if path]


def is_template(path: str) -> bool:
    return "{" in path or "}" in path


def read_mapping(given: object) -> Mapping:
    """Return a checked mapping from JSON values. Raises MappingRefused."""
    try:
        mapping = msgspec.convert(given, Mapping)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise MappingRefused(what, where.rstrip("`").lstrip(".").replace(".", "/")) from None
    if bool(mapping.input) == bool(mapping.user):
        raise MappingRefused("Give either a prompt column or a user message template.", "input")
    if mapping.context and mapping.user:
        raise MappingRefused("With a template, context must be a placeholder in the template.", "context")
    if len(mapping.fields) > MAX_MAPPED_FIELDS:
        raise MappingRefused(f"At most {MAX_MAPPED_FIELDS} fields.", "fields")
    if PARAMS in mapping.fields:
        raise MappingRefused(f"{PARAMS} is built from the prompt and cannot be a field.", "fields")
    for name, extractor in mapping.extract.items():
        if name not in mapping.fields and (name != "expected_answer" or not mapping.expected_answer):
            raise MappingRefused(f"{name} has an extractor but no column.", f"extract/{name}")
        try:
            read_extractor(extractor)
        except ExtractorRefused as error:
            raise MappingRefused(str(error), f"extract/{name}") from None
    for name in ("system", "user", "external_id"):
        template = getattr(mapping, name)
        if len(template) > _TEXT_LIMIT:
            raise MappingRefused(f"At most {_TEXT_LIMIT:,} characters.", name)
        try:
            template_paths(template)
        except TemplateRefused as error:
            raise MappingRefused(str(error), name) from None
    return mapping


def write_mapping(mapping: Mapping) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(mapping)
    return plain


def apply_mapping(mapping: Mapping, row: dict[str, Any]) -> dict[str, Any]:
    """Return the row in NeMo Gym format. Raises RowRefused. The result is not checked as a task."""
    items, answer = _items(mapping, row)
    task: dict[str, Any] = {PARAMS: {"input": items}}
    tools = _tools(_optional(row, mapping.tools))
    if tools is not None:
        task[PARAMS]["tools"] = tools
    if mapping.rest == "keep":
        used = set(mapping.paths) - {mapping.path_of(name) for name in mapping.extract}
        task.update((name, value) for name, value in row.items() if name not in used and name != PARAMS)
    for name, path in mapping.fields.items():
        _put(task, name, _extracted(mapping, name, row, _optional(row, path)))
    expected = _text_of_reply(_optional(row, mapping.expected_answer))
    _put(task, "expected_answer", answer if expected is None else _extracted(mapping, "expected_answer", row, expected))
    _put(task, "id", _id(row, mapping.external_id))
    _put(task, "split", _plain(row, mapping.split))
    _put(task, "tags", _tags(_optional(row, mapping.tags)))
    return task


def _extracted(mapping: Mapping, name: str, row: dict[str, Any], value: Any) -> Any:
    """Return the part of the value that the field's extractor takes, or all without one. Raises RowRefused."""
    extractor = mapping.extract.get(name)
    if extractor is None or value is None:
        return value
    found = read_extractor(extractor)(value)
    if found is None:
        message = f"has no match for the extractor {cut(extractor, 60)}"
        raise RowRefused("nothing_extracted", message, pointer=pointer_of(mapping.path_of(name)))
    return found


def _text_of_reply(value: Any) -> Any:
    """Return the text of the last message if the value is a reply of chat messages, as in TRL's `completion`."""
    messages = parse_cell(value)
    if isinstance(messages, list) and messages and isinstance(messages[-1], dict) and "role" in messages[-1]:
        return messages[-1].get("content")
    return value


def _put(task: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        task[name] = value


def _optional(row: dict[str, Any], path: str, default: Any = None) -> Any:
    value = look_up(row, path) if path else MISSING
    return default if value is MISSING else value


def _plain(row: dict[str, Any], path: str) -> Any:
    value = _optional(row, path)
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
        raise RowRefused("wrong_type", "must be text or a whole number", pointer=pointer_of(path))
    return value


def _id(row: dict[str, Any], path: str) -> Any:
    if not is_template(path):
        return _plain(row, path)
    if any(look_up(row, gap) in (MISSING, "") for gap in template_paths(path)):
        return None
    return fill_template(path, row)


def _items(mapping: Mapping, row: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the prompt's items, and the answer if it was removed from them."""
    try:
        opening = _opening(mapping.system, row)
        if mapping.user:
            asked = [{"role": "user", "content": fill_template(mapping.user, row)}]
            return [*opening, *_with_images(mapping, row, asked)], None
    except GapEmpty as gap:
        raise RowRefused("missing", "is missing: the prompt template needs it", pointer=str(gap)) from None
    value = look_up(row, mapping.input)
    pointer = pointer_of(mapping.input)
    if value is MISSING or value == "":
        raise RowRefused("missing", "is missing: the prompt column", pointer=pointer)
    value = parse_cell(value)
    context = _context(row, mapping.context)
    if isinstance(value, str):
        asked = [{"role": "user", "content": f"{value}\n\n{context}" if context else value}]
        return [*opening, *_with_images(mapping, row, asked)], None
    if context:
        message = "needs a text prompt"
        raise RowRefused("wrong_type", message, pointer=pointer_of(mapping.context))
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise RowRefused("wrong_type", "must be text or a list of messages", pointer=pointer)
    if is_sharegpt(value):
        try:
            value = read_sharegpt(value)
        except ValueError as error:
            raise RowRefused("wrong_shape", str(error), pointer=pointer) from None
    value = _with_images(mapping, row, value)
    answer = None
    if mapping.cut_answer:
        value, answer = cut_demonstration(value)
    return [*opening, *(_as_items(value, pointer))], answer


def _with_images(mapping: Mapping, row: dict[str, Any], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
        return place_images(messages, read_addresses(parse_cell(_optional(row, mapping.images))))
    except ValueError as error:
        pointer = pointer_of(mapping.images or mapping.input)
        raise RowRefused("wrong_images", str(error), pointer=pointer) from None


def _opening(template: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    if not template:
        return []
    parts = parse_template(template)
    gaps = [path for _, path in parts if path is not None]
    if gaps and not any(text.strip() for text, _ in parts) and all(look_up(row, gap) in (MISSING, "") for gap in gaps):
        return []
    return [{"role": "system", "content": fill_template(template, row)}]


def _context(row: dict[str, Any], path: str) -> str:
    value = _optional(row, path, "")
    text = value if isinstance(value, str) else dump_json(value)
    return text if text.strip() else ""


def _as_items(messages: list[dict[str, Any]], pointer: str) -> list[Any]:
    """Return messages as items. Chat messages with calls and results are converted; plain ones already are items."""
    is_chat = any(one.get("role") == "tool" or one.get("tool_calls") for one in messages)
    has_parts = any(
        isinstance(part, dict) and part.get("type") in {"text", "image_url"}
        for one in messages
        if isinstance(one.get("content"), list)
        for part in one["content"]
    )
    if not is_chat and not has_parts:
        # Columnar formats give every message every key that any message has.
        return [{name: value for name, value in one.items() if value is not None} for one in messages]
    try:
        return chat_items(messages)
    except (AttributeError, TypeError, ValueError):
        raise RowRefused("wrong_shape", "contains invalid chat messages", pointer=pointer) from None


def parse_cell(value: Any) -> Any:
    """Return the value of a table cell, which may hold a list as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith(("[{", "[ {")):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value
    return value


def _tools(value: Any) -> Any:
    value = parse_cell(value)
    if not isinstance(value, list):
        return value
    flat = map(flat_tool, value)
    # ShareGPT files list functions without a type.
    return [{"type": "function", **tool} if isinstance(tool, dict) and "name" in tool else tool for tool in flat]


def _tags(value: Any) -> Any:
    value = parse_cell(value)
    if isinstance(value, str):
        separator = "," if "," in value else ";"
        return [tag.strip() for tag in value.split(separator) if tag.strip()]
    return value
