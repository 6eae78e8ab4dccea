"""Task files: one line of JSONL becomes a task, or an error that names the place and what would be right."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from json import JSONDecodeError
from typing import Any, Protocol

import msgspec
import orjson

from apps.gym.items import TaskRow, input_items, item_type, text_of

MAX_DEPTH = 100
EXCERPT_CHARS = 200
READ_BYTES = 256 * 1024
KEPT_OF_LONG_LINE = 2048
ID_KEYS = ("id", "uuid", "task_id", "_ng_task_index")

PARAMS = "responses_create_params"
_NAMES = (
    "background include input instructions max_output_tokens max_tool_calls metadata model parallel_tool_calls "
    "previous_response_id prompt reasoning service_tier store temperature text tool_choice tools top_logprobs top_p "
    "truncation user stream"
)
PARAM_KEYS = frozenset(_NAMES.split())


class RowRefused(Exception):
    """A line that is no task: `code` is stable and short, the text is for people and holds a JSON pointer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class ParsedTask:
    """A task as it is stored. `row_json` is the line as it came but for stripped nulls; `fields` are its keys."""

    row_json: str
    external_id: str
    prompt_excerpt: str
    fields: frozenset[str]


def parse_line(line: bytes) -> ParsedTask:
    """The task of one line, or RowRefused.

    The text is kept rather than written anew, so that key order, big integers and the form of numbers survive.
    """
    text = _decode(line).strip()
    row = _load(text)
    params = _params(row)
    if any(value is None for value in params.values()):
        text = _without_null_params(text)
        row[PARAMS] = params = {key: value for key, value in params.items() if value is not None}
    for key, value in params.items():
        if check := _CHECKS.get(key):
            check(value, f"/{PARAMS}/{key}")
    if "input" not in params:
        raise RowRefused("missing", f"/{PARAMS}/input is missing: the prompt, as text or as a list of items")
    return ParsedTask(
        row_json=text, external_id=external_id(row), prompt_excerpt=prompt_excerpt(row), fields=frozenset(row)
    )


def prompt_excerpt(row: TaskRow) -> str:
    """The start of the last user message, on one line: what a list of tasks shows."""
    items = input_items(row)
    asked = [item for item in items if item_type(item) == "message" and item.get("role") == "user"]
    spoken = asked or [item for item in items if item_type(item) == "message"]
    return _plain(text_of(spoken[-1]), EXCERPT_CHARS) if spoken else ""


def external_id(row: TaskRow) -> str:
    """The row's own id, or nothing."""
    for key in ID_KEYS:
        value = row.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return _plain(str(value), EXCERPT_CHARS)
    return ""


def _plain(text: str, limit: int) -> str:
    # PostgreSQL stores no NUL in text. Cutting first keeps a megabyte of prompt cheap.
    return " ".join(text[: 4 * limit].replace("\x00", " ").split())[:limit]


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        bad = line[error.start]
        raise RowRefused("not_utf8", f"byte {error.start + 1} (0x{bad:02x}) is not UTF-8") from None


def _load(text: str) -> TaskRow:
    try:
        row = orjson.loads(text)
    except JSONDecodeError as error:
        if "recursion" in error.msg.lower() or "depth" in error.msg.lower():
            raise RowRefused("too_deep", f"nested deeper than {MAX_DEPTH} levels") from None
        raise RowRefused("not_json", f"not JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(row, dict):
        raise RowRefused("wrong_type", f"the line holds {_kind(row)}, not a JSON object")
    # The count of brackets bounds the depth: only lines with many are walked.
    if text.count("{") + text.count("[") > MAX_DEPTH:
        _check_depth(row)
    return row


def _check_depth(row: TaskRow) -> None:
    level: list[Any] = [row]
    for _ in range(MAX_DEPTH):
        values = [value for holder in level for value in (holder.values() if isinstance(holder, dict) else holder)]
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise RowRefused("too_deep", f"nested deeper than {MAX_DEPTH} levels")


def _params(row: TaskRow) -> dict[str, Any]:
    if PARAMS not in row:
        close = get_close_matches(PARAMS, row, n=1)
        hint = f" (did you mean {PARAMS} where it says {close[0]}?)" if close else ""
        raise RowRefused("missing", f"/{PARAMS} is missing: the object that holds the prompt{hint}")
    params = row[PARAMS]
    if not isinstance(params, dict):
        raise _wrong(f"/{PARAMS}", "an object", params)
    for key in params:
        if key not in PARAM_KEYS:
            close = get_close_matches(key, PARAM_KEYS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            allowed = ", ".join(sorted(PARAM_KEYS))
            shown = key[:80].replace("~", "~0").replace("/", "~1")
            raise RowRefused("unknown_key", f"/{PARAMS}/{shown} is not a known key: {hint}allowed are {allowed}")
    return params


_Fields = dict[str, msgspec.Raw]


def _without_null_params(text: str) -> str:
    """The same text but for keys of the parameters that are null; every other value keeps its own spelling."""
    fields = msgspec.json.decode(text, type=_Fields)
    params = msgspec.json.decode(fields[PARAMS], type=_Fields)
    kept = {key: raw for key, raw in params.items() if bytes(raw) != b"null"}
    return msgspec.json.encode({**fields, PARAMS: msgspec.Raw(msgspec.json.encode(kept))}).decode()


_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "null")


def _wrong(pointer: str, wanted: str, value: object) -> RowRefused:
    return RowRefused("wrong_type", f"{pointer} must be {wanted}, not {_kind(value)}")


def _check_input(value: object, pointer: str) -> None:
    if isinstance(value, str):
        if not value.strip():
            raise RowRefused("empty", f"{pointer} is empty: a task needs a prompt")
        return
    if not isinstance(value, list):
        raise _wrong(pointer, "text or a list of items", value)
    if not value:
        raise RowRefused("empty", f"{pointer} is an empty list: a task needs a prompt")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise _wrong(f"{pointer}/{index}", "an object with role or type", item)
        if not isinstance(item.get("type"), str) and not isinstance(item.get("role"), str):
            raise RowRefused("missing", f"{pointer}/{index} has neither role nor type")


def _check_tools(value: object, pointer: str) -> None:
    if not isinstance(value, list):
        raise _wrong(pointer, "a list", value)
    for index, tool in enumerate(value):
        at = f"{pointer}/{index}"
        if not isinstance(tool, dict):
            raise _wrong(at, "an object", tool)
        if isinstance(tool.get("function"), dict):
            raise RowRefused("wrong_shape", f"{at}/function: a tool is flat here, with name and parameters beside type")
        if tool.get("type", "function") != "function":
            raise RowRefused("wrong_type", f"{at}/type must be function")
        if not isinstance(tool.get("name"), str) or not tool["name"]:
            raise RowRefused("missing", f"{at}/name must be the tool's name")


def _check_metadata(value: object, pointer: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(pointer, "an object of texts", value)
    for key, text in value.items():
        if not isinstance(text, str):
            raise _wrong(f"{pointer}/{key[:80]}", "text", text)


def _of(wanted: str, *types: type) -> Callable[[object, str], None]:
    def check(value: object, pointer: str) -> None:
        if type(value) not in types:
            raise _wrong(pointer, wanted, value)

    return check


def _check_stream(value: object, pointer: str) -> None:
    if value is not False:
        raise RowRefused("wrong_type", f"{pointer} can only be false: replies are recorded whole")


_text, _number = _of("text", str), _of("a number", int, float)
_whole, _truth = _of("a whole number", int), _of("true or false", bool)
_CHECKS: dict[str, Callable[[object, str], None]] = {
    "input": _check_input,
    "tools": _check_tools,
    "metadata": _check_metadata,
    "stream": _check_stream,
    "instructions": _text,
    "model": _text,
    "max_output_tokens": _whole,
    "max_tool_calls": _whole,
    "top_logprobs": _whole,
    "temperature": _number,
    "top_p": _number,
    "parallel_tool_calls": _truth,
    "tool_choice": _of("text or an object", str, dict),
}


class Readable(Protocol):
    """What uploads come as: open files, spooled request bodies, standard input."""

    def read(self, size: int = ..., /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class TooLong:
    """Stands for a line over the limit: its size, and its start for the list of refused lines."""

    size: int
    head: bytes


class LineReader:
    """The lines of a binary stream that are not blank, with their numbers from 1.

    Holds at most one line of `max_line_bytes` and one block of 256 KB: of a longer line only the start is kept.
    """

    def __init__(self, stream: Readable, *, max_line_bytes: int) -> None:
        self._stream = stream
        self._limit = max_line_bytes
        self._held: list[bytes] = []
        self._size = 0
        self._number = 0
        self.bytes_read = 0

    def __iter__(self) -> Iterator[tuple[int, bytes | TooLong]]:
        while block := self._stream.read(READ_BYTES):
            self.bytes_read += len(block)
            *whole, rest = block.split(b"\n")
            for piece in whole:
                self._hold(piece)
                yield from self._line()
            self._hold(rest)
        yield from self._line()

    def _hold(self, piece: bytes) -> None:
        was_too_long = self._size > self._limit
        self._size += len(piece)
        if self._size <= self._limit:
            self._held.append(piece)
        elif not was_too_long:
            self._held = [b"".join([*self._held, piece])[:KEPT_OF_LONG_LINE]]

    def _line(self) -> Iterator[tuple[int, bytes | TooLong]]:
        line, size = b"".join(self._held), self._size
        self._held, self._size = [], 0
        self._number += 1
        if self._number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if size > self._limit:
            yield self._number, TooLong(size=size, head=line[:KEPT_OF_LONG_LINE])
        elif line := line.strip():
            yield self._number, line
