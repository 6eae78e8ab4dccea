"""Find the task of each stored rollout by identity and content.

A number in a file (`_ng_task_index`) is a position, which changes when rows are swapped or deleted. It only identifies
a task within the run that wrote it, so the rollout must agree with the task of that number.
"""

import hashlib
from typing import IO

from apps.gym.rollout_files.rollout_rows import TASK_INDEX, prompt_texts, read_object
from apps.gym.rollout_files.shapes.stored_rows import StoredLine
from apps.gym.rollout_files.task_agreement import (
    adds_observation,
    content_of,
    find_difference,
    has_evidence,
    has_identity,
    identity_of,
)
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.parameters import PARAMS
from apps.gym.traces.items import TaskRow, dump_json
from apps.rollouts.imports.line_index import LineIndex

MAX_CANDIDATES = 1000
"""Task rows with one prompt that a rollout without an identity is compared with."""


class TaskFinder:
    """The tasks of an import: rows of the files, and tasks restored from rollouts. `rows` is a file of their rows."""

    def __init__(self, index: LineIndex, rows: IO[bytes]) -> None:
        self._index = index
        self._rows = rows

    def add_row(self, text: bytes, *, given: int | None) -> int:
        """Add a task row and return its number. `given` is its number in the file."""
        start = self._rows.seek(0, 2)
        self._rows.write(text + b"\n")
        return self._index.add_task(start, given=given)

    def add_prompt(self, number: int, task: TaskRow) -> None:
        """Let rollouts find the task by its prompt. Not for restored tasks: these must not match other rollouts."""
        texts = prompt_texts(task)
        self._index.add_prompt(
            number, prompt=hash_of(texts), length=len(texts), identity=identity_of(task), content=content_of(task)
        )

    def is_named(self, index: int, task: TaskRow) -> bool:
        """Return True if materialised inputs named this task before. Raise RowRefused if they named another one."""
        named = self._index.named_task(index)
        if named is None:
            return False
        known = self._read(named)
        if prompt_texts(known) != prompt_texts(task):
            raise _other_task(index, "prompt")
        if field := find_difference(known, task):
            raise _other_task(index, field)
        return True

    def complete(self, given: StoredLine, index: int | None) -> StoredLine:
        """Give a failure that was stored without its task the materialised one with its number."""
        if given.kind != "failure" or PARAMS in given.row:
            return given
        named = None if index is None else self._index.named_task(index)
        if named is None or index is None:
            told = f"the failure holds only the number of its task ({index}). Add the file …_materialized_inputs.jsonl"
            raise RowRefused("missing", told)
        task = self._read(named)
        if field := find_difference(task, given.told):
            raise _other_task(index, field)
        return given.completed(task)

    def find_task(self, given: StoredLine, index: int | None, place: int) -> int:
        """Return the number of the rollout's task. `place` is the position of its file. Raises RowRefused."""
        texts = prompt_texts(given.row)
        if index is not None and (named := self._index.named_task(index)) is not None:
            self._check(named, given, texts, index)
            return named
        found = self._find_row(given, texts, index)
        return self._own_task(given, texts, index, place) if found is None else found

    def _find_row(self, given: StoredLine, texts: tuple[str, ...], index: int | None) -> int | None:
        """Return the task row with this prompt that agrees with the rollout, or None.

        The prompt may be longer than the task's: environments append their first observation.
        """
        for length in sorted((one for one in self._index.lengths if one <= len(texts)), reverse=True):
            prompt = hash_of(texts[:length])
            known = self._index.tasks_asking(prompt, MAX_CANDIDATES + 1)
            if len(known) > MAX_CANDIDATES and (identity := identity_of(given.told)):
                known = self._index.tasks_asking(prompt, MAX_CANDIDATES + 1, identity)
            is_same = length == len(texts) > 0 or adds_observation(texts[:length], texts)
            fitting, field = [], ""
            for content, number in known[:MAX_CANDIDATES]:
                task = self._read(number)
                different = find_difference(task, given.told)
                field = field or different
                if not different and (is_same or has_evidence(task, given.told)):
                    fitting.append((content, number))
                if len(fitting) > 1:
                    raise _ambiguous("several task rows have this prompt, and the rollout agrees with all of them")
            if len(known) > MAX_CANDIDATES:
                raise _ambiguous(f"more than {MAX_CANDIDATES:,} different task rows have this prompt")
            if fitting:
                [(content, number)] = fitting
                # Equal rows are tasks of their own. The number tells them apart, and cannot be wrong.
                return index if index is not None and self._index.has_equal(prompt, content, index) else number
            if is_same and field:
                told = "differs from the task row with this prompt, so the rows were changed after the run"
                raise RowRefused("other_task", f"{told}. {_REMEDY}", pointer=f"/{field}")
        return None

    def _own_task(self, given: StoredLine, texts: tuple[str, ...], index: int | None, place: int) -> int:
        """Return the task restored from this rollout or an earlier one of the same task."""
        if index is None:
            keys = [hash_of(dump_json(given.group or given.task))]
            own = self._index.own_task(keys[0])
        else:
            # In another file, for example of failures, the number counts only with the same prompt and content.
            keys = [hash_of((place, index)), hash_of((index, texts))]
            own = self._index.own_task(keys[0])
            if own is not None:
                self._check(own, given, texts, index, is_restored=True)
            else:
                own = self._index.own_task(keys[1])
                if own is not None and find_difference(self._read(own), given.told, is_restored=True):
                    own = None
        if own is None:
            own = self.add_row(dump_json(given.task).encode(), given=index)
        for key in keys:
            self._index.keep_own_task(key, own)
        return own

    def _check(
        self, number: int, given: StoredLine, texts: tuple[str, ...], index: int, *, is_restored: bool = False
    ) -> None:
        """Raise RowRefused if the rollout is not of this task, which has its number."""
        task = self._read(number)
        if field := find_difference(task, given.told, is_restored=is_restored):
            raise _other_task(index, field)
        asked = prompt_texts(task)
        # In place of a task without a prompt, the agent or the environment asks.
        if asked == texts or has_identity(task, given.told) or not (asked or is_restored):
            return
        if adds_observation(asked, texts) or _observe_alike(asked, texts, given):
            return
        if texts[: len(asked)] == asked and has_evidence(task, given.told):
            return
        raise _other_task(index, "prompt")

    def _read(self, number: int) -> TaskRow:
        self._rows.seek(self._index.start_of(number))
        return read_object(self._rows.readline())


def hash_of(value: object) -> bytes:
    return hashlib.sha256(repr(value).encode(errors="replace")).digest()


def _observe_alike(asked: tuple[str, ...], texts: tuple[str, ...], given: StoredLine) -> bool:
    """Return True for two attempts at one game of a Gymnasium server, each with another first observation."""
    is_game = "terminated" in given.row and "truncated" in given.row
    return is_game and len(asked) == len(texts) and adds_observation(asked[:-1], texts)


_REMEDY = (
    "Give the file …_materialized_inputs.jsonl that this run wrote, or leave the task rows out: the tasks are then "
    "restored from the rollouts"
)


def _other_task(index: int, field: str) -> RowRefused:
    what = "prompt" if field == "prompt" else f"value in {field}"
    told = (
        f"the number {index} belongs to a task with another {what}: rows were swapped, deleted or changed between the "
        "lines with this number. Import each run by itself, with the file …_materialized_inputs.jsonl that it wrote. "
        "If the verifier wrote this value, leave the task rows out"
    )
    return RowRefused("other_task", told, pointer=f"/{TASK_INDEX}")


def _ambiguous(reason: str) -> RowRefused:
    return RowRefused("ambiguous_task", f"{reason}. {_REMEDY}", pointer=f"/{PARAMS}/input")
