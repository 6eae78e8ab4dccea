"""Task files: one line of JSONL becomes a task, or an error that names the place and what would be right."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from json import JSONDecodeError
from typing import Any

import msgspec
import orjson

from apps.gym.itemchecks import find_choice_problem, find_item_problem
from apps.gym.items import TaskRow, dump_json, input_items, item_type, text_of
from apps.gym.taskfiles.limits import MAX_DEPTH

EXCERPT_CHARS = 200
ID_CHARS = 200
MARK_CHARS = 64
MAX_TAGS = 32
ID_KEYS = ("id", "uuid", "task_id", "_ng_task_index")

PARAMS = "responses_create_params"
_NAMES = (
    "background include input instructions max_output_tokens max_tool_calls metadata model parallel_tool_calls "
    "previous_response_id prompt reasoning service_tier store temperature text tool_choice tools top_logprobs top_p "
    "truncation user stream"
)
PARAM_KEYS = frozenset(_NAMES.split())


class RowRefused(Exception):
    """A line that is no task: `code` is stable and short, `pointer` (RFC 6901) is the place in the row where there is
    one, and `message`, for people, begins with it."""

    def __init__(self, code: str, message: str, *, pointer: str = "") -> None:
        self.code = code
        self.message = f"{pointer} {message}" if pointer else message
        self.pointer = pointer
        super().__init__(self.message)


@dataclass(frozen=True, slots=True)
class ParsedTask:
    """A task as it is stored. `row_json` is the line as it came but for stripped nulls; `row` is the same, parsed."""

    row_json: str
    row: TaskRow
    external_id: str
    prompt_excerpt: str
    split: str
    tags: tuple[str, ...]


def read_row(line: bytes) -> tuple[str, TaskRow]:
    """The text of one line and the object in it, or RowRefused."""
    text = _decode(line).strip()
    row = _load(text)
    _check_keys(text, row)
    return text, row


def parse_line(line: bytes) -> ParsedTask:
    """The task of one line, or RowRefused.

    The text is kept rather than written anew, so that key order, big integers and the form of numbers survive.
    """
    return check_task(*read_row(line))


def parse_changed(line: bytes, change: Callable[[TaskRow], TaskRow]) -> ParsedTask:
    """The task that the row of one line is changed into, or RowRefused."""
    text, row = read_row(line)
    if _LONG_NUMBER.search(text):
        # A number that orjson gives as a float: Python's own parser keeps all its digits.
        row = json.loads(text)
        changed = change(row)
        return check_task(json.dumps(changed, ensure_ascii=False), changed)
    changed = change(row)
    return check_task(dump_json(changed), changed)


_LONG_NUMBER = re.compile(r"\d{19}")


def check_task(text: str, row: TaskRow) -> ParsedTask:
    """The row as a task, or RowRefused."""
    params = _params(row)
    if any(value is None for value in params.values()):
        text = _without_null_params(text)
        row[PARAMS] = params = {key: value for key, value in params.items() if value is not None}
    for key, value in params.items():
        if check := _CHECKS.get(key):
            check(value, f"/{PARAMS}/{key}")
    if "input" not in params:
        raise RowRefused("missing", "is missing: the prompt, as text or as a list of items", pointer=f"/{PARAMS}/input")
    return ParsedTask(
        row_json=text,
        row=row,
        external_id=external_id(row),
        prompt_excerpt=prompt_excerpt(row),
        split=_split(row.get("split")),
        tags=_tags(row.get("tags")),
    )


def prompt_excerpt(row: TaskRow) -> str:
    """The start of the last user message, on one line: what a list of tasks shows."""
    items = input_items(row)
    asked = [item for item in items if item_type(item) == "message" and item.get("role") == "user"]
    spoken = asked or [item for item in items if item_type(item) == "message"]
    return _plain(text_of(spoken[-1]), EXCERPT_CHARS) if spoken else ""


def external_id(row: TaskRow) -> str:
    """The row's own id as it is, or nothing. One that cannot be stored whole is refused: cut, it would be another's."""
    for key in ID_KEYS:
        value = row.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return _whole_id(key, value)
    return ""


def _whole_id(key: str, value: str | int) -> str:
    # Python writes no whole number of thousands of digits as text.
    is_long = len(value) > ID_CHARS if isinstance(value, str) else abs(value) >= 10**ID_CHARS
    if is_long:
        raise RowRefused("too_long", f"must have at most {ID_CHARS} characters: it is the row's id", pointer=f"/{key}")
    # PostgreSQL stores no NUL in text.
    return str(value).replace("\x00", " ")


def read_marks(row: TaskRow) -> tuple[str, tuple[str, ...]]:
    """The split and the tags that a stored row says itself. Earlier ones may hold other things of that name."""
    try:
        tags = _tags(row.get("tags"))
    except RowRefused:
        tags = ()
    return _split(row.get("split")), tags


def _split(value: object) -> str:
    return _plain(value, MARK_CHARS) if isinstance(value, str) else ""


def _tags(value: object) -> tuple[str, ...]:
    """Anything else of that name would be dropped without a word."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _wrong("/tags", "a list of texts", value)
    for index, tag in enumerate(value):
        if not isinstance(tag, str):
            raise _wrong(f"/tags/{index}", "text", tag)
    return tuple(dict.fromkeys(tag for one in value[:MAX_TAGS] if (tag := _plain(one, MARK_CHARS))))


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
        if "infinity" in error.msg or _NOT_FINITE.match(text, error.pos):
            message = f"a number that is not finite, or beyond 1.8e308 (column {error.colno})"
            raise RowRefused("not_finite", message) from None
        raise RowRefused("not_json", f"not JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(row, dict):
        raise RowRefused("wrong_type", f"the line holds {_kind(row)}, not a JSON object")
    # The count of brackets bounds the depth: only lines with many are walked.
    if text.count("{") + text.count("[") > MAX_DEPTH:
        check_depth(row)
    return row


_NOT_FINITE = re.compile(r"-?(NaN|Infinity)")
_KEY = re.compile(r'"\s*:')


def _check_keys(text: str, row: TaskRow) -> None:
    """A name twice in one object: one of the two values would be lost without a word."""
    # Every name is followed by a colon, and so are some quotes inside texts: only where there are more of these than
    # names is it worth parsing again.
    if len(_KEY.findall(text)) > _count_keys(row):
        json.loads(text, object_pairs_hook=_refuse_repeated)


def _count_keys(row: TaskRow) -> int:
    count = 0
    waiting: list[Any] = [row]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict):
            count += len(holder)
            holder = holder.values()
        waiting += [value for value in holder if isinstance(value, dict | list)]
    return count


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise RowRefused("duplicate_key", f"the name {name[:80]!r} stands twice in one object")
    return names


def check_depth(row: TaskRow) -> None:
    """Raises RowRefused for what is nested deeper than anything here follows."""
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
        raise RowRefused("missing", f"is missing: the object that holds the prompt{hint}", pointer=f"/{PARAMS}")
    params = row[PARAMS]
    if not isinstance(params, dict):
        raise _wrong(f"/{PARAMS}", "an object", params)
    for key in params:
        if key not in PARAM_KEYS:
            close = get_close_matches(key, PARAM_KEYS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            allowed = ", ".join(sorted(PARAM_KEYS))
            shown = key[:80].replace("~", "~0").replace("/", "~1")
            message = f"is not a known key: {hint}allowed are {allowed}"
            raise RowRefused("unknown_key", message, pointer=f"/{PARAMS}/{shown}")
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
    return RowRefused("wrong_type", f"must be {wanted}, not {_kind(value)}", pointer=pointer)


def _check_input(value: object, pointer: str) -> None:
    if isinstance(value, str):
        if not value.strip():
            raise RowRefused("empty", "is empty: a task needs a prompt", pointer=pointer)
        return
    if not isinstance(value, list):
        raise _wrong(pointer, "text or a list of items", value)
    if not value:
        raise RowRefused("empty", "is an empty list: a task needs a prompt", pointer=pointer)
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise _wrong(f"{pointer}/{index}", "an object with role or type", item)
        if found := find_item_problem(item):
            code, place, message = found
            raise RowRefused(code, message, pointer=f"{pointer}/{index}{place}")


def _check_tools(value: object, pointer: str) -> None:
    if not isinstance(value, list):
        raise _wrong(pointer, "a list", value)
    for index, tool in enumerate(value):
        at = f"{pointer}/{index}"
        if not isinstance(tool, dict):
            raise _wrong(at, "an object", tool)
        if isinstance(tool.get("function"), dict):
            message = "must not be there: tools are flat here, all beside type"
            raise RowRefused("wrong_shape", message, pointer=f"{at}/function")
        if tool.get("type", "function") != "function":
            raise RowRefused("wrong_type", "must be function", pointer=f"{at}/type")
        if not isinstance(tool.get("name"), str) or not tool["name"]:
            raise RowRefused("missing", "must be the tool's name", pointer=f"{at}/name")


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
        raise RowRefused("wrong_type", "can only be false: replies are recorded whole", pointer=pointer)


def _check_choice(value: object, pointer: str) -> None:
    if found := find_choice_problem(value):
        code, place, message = found
        raise RowRefused(code, message, pointer=f"{pointer}{place}")


def _between(least: float, most: float) -> Callable[[object, str], None]:
    def check(value: object, pointer: str) -> None:
        if type(value) not in (int, float):
            raise _wrong(pointer, "a number", value)
        if not least <= value <= most:  # type: ignore[operator]
            raise RowRefused("out_of_range", f"must be from {least:g} to {most:g}", pointer=pointer)

    return check


def _whole(least: int, most: int | None = None) -> Callable[[object, str], None]:
    def check(value: object, pointer: str) -> None:
        if type(value) is not int:
            raise _wrong(pointer, "a whole number", value)
        if value < least or (most is not None and value > most):
            wanted = f"{least} or more" if most is None else f"from {least} to {most}"
            raise RowRefused("out_of_range", f"must be {wanted}", pointer=pointer)

    return check


_text, _truth = _of("text", str), _of("true or false", bool)
_CHECKS: dict[str, Callable[[object, str], None]] = {
    "input": _check_input,
    "tools": _check_tools,
    "metadata": _check_metadata,
    "stream": _check_stream,
    "instructions": _text,
    "model": _text,
    "max_output_tokens": _whole(1),
    "max_tool_calls": _whole(0),
    "top_logprobs": _whole(0),
    "temperature": _between(0, 2),
    "top_p": _between(0, 1),
    "parallel_tool_calls": _truth,
    "tool_choice": _check_choice,
}
