"""Task files: one line of JSONL becomes a task, or an error that names the place and what would be right."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from apps.gym.tasks.file_rows import RowRefused, read_row, wrong_type
from apps.gym.tasks.parameters import PARAMS, check_params, find_params, without_null_params
from apps.gym.traces.items import TaskRow, dump_json, input_items, item_type, text_of

EXCERPT_CHARS = 200
ID_CHARS = 200
MARK_CHARS = 64
MAX_TAGS = 32
ID_KEYS = ("id", "uuid", "task_id", "_ng_task_index")


@dataclass(frozen=True, slots=True)
class ParsedTask:
    """A task as it is stored. `row_json` is the line as it came but for stripped nulls; `row` is the same, parsed."""

    row_json: str
    row: TaskRow
    external_id: str
    prompt_excerpt: str
    split: str
    tags: tuple[str, ...]


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
    params = find_params(row)
    if any(value is None for value in params.values()):
        text = without_null_params(text)
        row[PARAMS] = params = {key: value for key, value in params.items() if value is not None}
    check_params(params)
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
    """The row's own id as it is, or nothing. One that cannot be stored whole is refused: cut, it would be another's.
    So is one of another kind: passed over, the row would have another id than its file says, or none."""
    for key in ID_KEYS:
        value = row.get(key)
        if value is not None and value != "":
            return _whole_id(key, value)
    return ""


def _whole_id(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise wrong_type(f"/{key}", "text or a whole number, since it is the row's id", value)
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
    try:
        split = _split(row.get("split"))
    except RowRefused:
        split = _plain(value, MARK_CHARS) if isinstance(value := row.get("split"), str) else ""
    return split, tags


def _split(value: object) -> str:
    """Cut it would be another split, and anything else of that name would be dropped without a word."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise wrong_type("/split", "text or a whole number", value)
    # Python writes no whole number of thousands of digits as text; one character more than the limit tells.
    most = MARK_CHARS - 1
    if abs(value) >= 10**most if isinstance(value, int) else len(_plain(value, MARK_CHARS + 1)) > MARK_CHARS:
        raise RowRefused("too_long", f"must have at most {MARK_CHARS} characters", pointer="/split")
    return _plain(str(value), MARK_CHARS)


def _tags(value: object) -> tuple[str, ...]:
    """Anything else of that name would be dropped without a word."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_type("/tags", "a list of texts", value)
    for index, tag in enumerate(value):
        if not isinstance(tag, str):
            raise wrong_type(f"/tags/{index}", "text", tag)
    return tuple(dict.fromkeys(tag for one in value[:MAX_TAGS] if (tag := _plain(one, MARK_CHARS))))


def _plain(text: str, limit: int) -> str:
    # PostgreSQL stores no NUL in text. Cutting first keeps a megabyte of prompt cheap.
    return " ".join(text[: 4 * limit].replace("\x00", " ").split())[:limit]
