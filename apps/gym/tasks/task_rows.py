"""Parse task files: one line of JSONL becomes a task, or an error with the place and a remedy."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from apps.gym.tasks.file_rows import RowRefused, expect, read_row, wrong_type
from apps.gym.tasks.materialised_tasks import flat_task, is_materialised
from apps.gym.tasks.parameters import check_params, drop_null_params, find_params
from apps.gym.traces.items import TaskRow, dump_json, input_items, item_type, text_of

EXCERPT_CHARS = 200
ID_CHARS = 200
MARK_CHARS = 64
MAX_TAGS = 32
ID_KEYS = ("id", "uuid", "task_id")


@dataclass(frozen=True, slots=True)
class ParsedTask:
    """A task to store. `row_json` is the line as uploaded; `row` is the parsed row without null parameters."""

    row_json: str
    row: TaskRow
    external_id: str
    prompt_excerpt: str
    split: str
    tags: tuple[str, ...]


def parse_line(line: bytes) -> ParsedTask:
    """Return the task of one line.

    Raises RowRefused.

    The original text is kept, so that key order, big integers and the format of numbers survive. Only a materialised
    task is stored as its flat row.
    """
    text, row = read_row(line)
    return parse_changed(line, flat_task) if is_materialised(row) else check_task(text, row)


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
    find_params(row)
    check_params(drop_null_params(row))
    return ParsedTask(
        row_json=text,
        row=row,
        external_id=external_id(row),
        prompt_excerpt=prompt_excerpt(row),
        split=_split(row.get("split")),
        tags=_tags(row.get("tags")),
    )


def load_row(text: str) -> TaskRow:
    """Return the row of a stored text, without null parameters."""
    row: TaskRow = orjson.loads(text)
    drop_null_params(row)
    return row


def prompt_excerpt(row: TaskRow) -> str:
    """Return the start of the last user message on one line, for lists of tasks."""
    items = input_items(row)
    asked = [item for item in items if item_type(item) == "message" and item.get("role") == "user"]
    spoken = asked or [item for item in items if item_type(item) == "message"]
    return _plain(text_of(spoken[-1]), EXCERPT_CHARS) if spoken else ""


def external_id(row: TaskRow) -> str:
    """Return the id of the row, or an empty text.

    Ids of NeMo Gym's tasksets are unique within their taskset. `_ng_task_index` is a position, not an id.

    Ids that are too long are refused, because cut they might be equal to others. Ids of other types are refused too,
    because otherwise the id would differ from that in the file.
    """
    for key in ID_KEYS:
        value = row.get(key)
        if value is not None and value != "":
            taskset = row.get("taskset") if key == "task_id" else None
            whole = _whole_id(key, value)
            return _whole_id(key, f"{taskset}/{whole}") if isinstance(taskset, str) and taskset else whole
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
    """Return the split and the tags of a stored row. Rows of older versions may have tags that are now refused."""
    given = row.get("tags")
    tags = [tag for one in given if isinstance(one, str) and (tag := _plain(one, MARK_CHARS))] if given else []
    return _split(row.get("split")), tuple(dict.fromkeys(tags[:MAX_TAGS]))


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
    """Return the tags. Invalid, too long and too many ones are refused, because each may be filtered by."""
    if value is None:
        return ()
    tags: dict[str, None] = {}
    for index, given in enumerate(expect(value, list, "a list of texts", "/tags")):
        tag = _plain(expect(given, str, "text", f"/tags/{index}"), MARK_CHARS + 1)
        if len(tag) > MARK_CHARS:
            raise RowRefused("too_long", f"must have at most {MARK_CHARS} characters", pointer=f"/tags/{index}")
        if tag:
            tags[tag] = None
    if len(tags) > MAX_TAGS:
        raise RowRefused("too_many", f"must be at most {MAX_TAGS} tags, not {len(tags):,}", pointer="/tags")
    return tuple(tags)


def _plain(text: str, limit: int) -> str:
    # PostgreSQL cannot store NUL in text. Cutting first avoids work on long prompts.
    return " ".join(text[: 4 * limit].replace("\x00", " ").split())[:limit]
