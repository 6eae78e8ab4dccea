"""Join the lines of files that hold one trajectory: sessions of coding agents, and JSON documents over several lines.

The first line decides. Other files keep their lines.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from json import JSONDecodeError, loads
from typing import Any

from apps.gym.rollout_files.shapes.claude_code_sessions import is_claude_code_line
from apps.gym.rollout_files.shapes.codex_sessions import is_codex_line
from apps.gym.tasks.file_rows import RowRefused, expect, read_row
from apps.gym.tasks.files.file_limits import BadRow, too_long

SESSION = "_gymweb_session"
"""Key of a joined session: the format."""
LINES = "lines"
"""Key of a joined session: pairs of line number and object."""
SESSION_FORMATS = ("claude_code", "codex")

Numbered = tuple[int, bytes | BadRow]

_METRICS = re.compile(rb'\[\{.*"(agent_metrics|sample_count|mean/reward)":')
"""The start of a file of NeMo Gym's metrics on one line."""


def join_sessions(lines: Iterable[Numbered], wanted: str, *, max_bytes: int) -> Iterator[Numbered]:
    """Yield the lines of one file. A session or a document is one line, with the number of its first.

    Raises RowRefused, with the line, if a session or a document cannot be read.
    """
    given = iter(lines)
    first = next(given, None)
    if first is None:
        return
    rest = chain([first], given)
    if session := _session_format(first[1], wanted):
        yield first[0], _join(rest, session, max_bytes)
    elif isinstance(first[1], bytes) and (first[1] == b"[" or _METRICS.match(first[1])):
        told = (
            "a JSON list holds no lines of rollouts. Metrics of NeMo Gym (group_level_metrics, repeat_level_metrics, "
            "perf_summary) are not imported: leave this file out, since GymWeb measures the rollouts itself"
        )
        raise RowRefused("json_list", told, line=first[0])
    elif first[1] == b"{":
        yield first[0], _join_document(rest, max_bytes)
    else:
        yield from rest


def session_lines(row: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Return the numbered lines of a joined session. Raises RowRefused."""
    pairs = expect(row.get(LINES), list, "the lines of a session", f"/{LINES}")
    for place, pair in enumerate(pairs):
        if not (isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is int and isinstance(pair[1], dict)):
            raise RowRefused("wrong_type", "must be a line number and an object", pointer=f"/{LINES}/{place}")
    return [(number, line) for number, line in pairs]


def _session_format(line: bytes | BadRow, wanted: str) -> str:
    if wanted in SESSION_FORMATS:
        return wanted
    if wanted != "auto" or isinstance(line, BadRow):
        return ""
    try:
        _, row = read_row(line)
    except RowRefused:
        return ""
    if is_codex_line(row):
        return "codex"
    return "claude_code" if is_claude_code_line(row) else ""


def _join(lines: Iterable[Numbered], session: str, max_bytes: int) -> bytes:
    parts = []
    for number, line in _checked(lines, max_bytes):
        try:
            read_row(line)
        except RowRefused as refusal:
            raise RowRefused(refusal.code, refusal.message, line=number) from None
        parts.append(b"[%d,%s]" % (number, line))
    return b'{"%s":"%s","%s":[%s]}' % (SESSION.encode(), session.encode(), LINES.encode(), b",".join(parts))


def _join_document(lines: Iterable[Numbered], max_bytes: int) -> bytes:
    numbers, texts = [], []
    for number, line in _checked(lines, max_bytes):
        numbers.append(number)
        texts.append(line)
    try:
        # Only to find the line of an error: the joined line is checked like any other.
        loads(b"\n".join(texts))
    except JSONDecodeError as error:
        at = numbers[min(error.lineno, len(numbers)) - 1]
        raise RowRefused("not_json", f"not JSON: {error.msg} (column {error.colno})", line=at) from None
    except (UnicodeDecodeError, RecursionError):
        pass
    return b" ".join(texts)


def _checked(lines: Iterable[Numbered], max_bytes: int) -> Iterator[tuple[int, bytes]]:
    size = 0
    for number, line in lines:
        if isinstance(line, BadRow):
            raise RowRefused(line.code, line.message, line=number)
        size += len(line)
        if size > max_bytes:
            raise RowRefused("too_long", too_long(size, max_bytes, "session"), line=number)
        yield number, line
