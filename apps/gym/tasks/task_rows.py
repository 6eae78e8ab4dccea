"""Parse task files: one line of JSONL becomes a task, or an error with the place and a remedy."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from apps.gym.tasks.file_rows import RowRefused, expect, read_row, wrong_type
from apps.gym.tasks.parameters import PARAMS, check_params, find_params, without_null_params
from apps.gym.traces.items import TaskRow, dump_json, input_items, item_type, text_of

EXCERPT_CHARS = 200
ID_CHARS = 200
MARK_CHARS = 64
MAX_TAGS = 32
ID_KEYS = ("id", "uuid", "task_id", "_ng_task_index")


@dataclass(frozen=True, slots=True)
class ParsedTask:
    """A task to store. `row_json` is the original line without stripped nulls; `row` is the parsed row."""

    row_json: str
    row: TaskRow
    external_id: str
    prompt_excerpt: str
    split: str
    tags: tuple[str, ...]


def parse_line(line: bytes) -> ParsedTask:
    """Return the task of one line.

    Raises RowRefused.

    The original text is kept, so that key order, big integers and the format of numbers survive.
    """
    return check_task(*read_row(line))


def parse_changed(line: bytes, change: Callable[[TaskRow], TaskRow]) -> ParsedTask:
    """Return the task made by applying `change` to the row of one line. Raises RowRefused."""
    text, row = read_row(line)
    if _LONG_NUMBER.search(text):
        # orjson reads such a number as a float; Python's parser keeps all its digits.
        row = json.loads(text)
        changed = change(row)
        return check_task(json.dumps(changed, ensure_ascii=False), changed)
    changed = change(row)
    return check_task(dump_json(changed), changed)


_LONG_NUMBER = re.compile(r"\d{19}")


def check_task(text: str, row: TaskRow) -> ParsedTask:
    """Return the row as a task. Raises RowRefused."""
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
    """Return the start of the last user message on one line, for lists of tasks."""
    items = input_items(row)
    asked = [item for item in items if item_type(item) == "message" and item.get("role") == "user"]
    spoken = asked or [item for item in items if item_type(item) == "message"]
    return _plain(text_of(spoken[-1]), EXCERPT_CHARS) if spoken else ""


def external_id(row: TaskRow) -> str:
    """Return the id of the row, or an empty text.

    Ids that are too long are refused, because cut they might be equal to others. Ids of other types are refused too,
    because otherwise the id would differ from that in the file.
    """
    for key in ID_KEYS:
        value = row.get(key)
        if value is not None and value != "":
            return _whole_id(key, value)
    return ""


def _whole_id(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise wrong_type(f"/{key}", "text or a whole number, because it is the row id", value)
    # Python does not write integers of thousands of digits as text.
    is_long = len(value) > ID_CHARS if isinstance(value, str) else abs(value) >= 10**ID_CHARS
    if is_long:
        raise RowRefused("too_long", f"must have at most {ID_CHARS} characters (row id)", pointer=f"/{key}")
    # PostgreSQL cannot store NUL in text.
    return str(value).replace("\x00", " ")


def read_marks(row: TaskRow) -> tuple[str, tuple[str, ...]]:
    """Return the split and the tags of a stored row."""
    return _split(row.get("split")), _tags(row.get("tags"))


def _split(value: object) -> str:
    """Return the split.

    Invalid values are refused, because cutting or dropping them would silently change the split.
    """
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise wrong_type("/split", "text or a whole number", value)
    # Python does not write integers of thousands of digits as text. One more character than the limit is enough to
    # compare.
    most = MARK_CHARS - 1
    if abs(value) >= 10**most if isinstance(value, int) else len(_plain(value, MARK_CHARS + 1)) > MARK_CHARS:
        raise RowRefused("too_long", f"must have at most {MARK_CHARS} characters", pointer="/split")
    return _plain(str(value), MARK_CHARS)


def _tags(value: object) -> tuple[str, ...]:
    """Return the tags. Invalid values are refused rather than dropped silently."""
    if value is None:
        return ()
    tags = [
        expect(tag, str, "text", f"/tags/{index}")
        for index, tag in enumerate(expect(value, list, "a list of texts", "/tags"))
    ]
    return tuple(dict.fromkeys(tag for one in tags[:MAX_TAGS] if (tag := _plain(one, MARK_CHARS))))


def _plain(text: str, limit: int) -> str:
    # PostgreSQL cannot store NUL in text. Cutting first avoids work on long prompts.
    return " ".join(text[: 4 * limit].replace("\x00", " ").split())[:limit]
