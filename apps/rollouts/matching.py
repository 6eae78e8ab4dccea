"""Which task each stored rollout attempts, and whether all of it can be stored: found out before anything is."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from django.conf import settings

from apps.accounts.models import User
from apps.gym import leaving
from apps.gym.items import TaskRow, dump_json
from apps.gym.rolloutfile import (
    ROLLOUT_INDEX,
    TASK_INDEX,
    StoredAttempt,
    check_task,
    line_kind,
    own_task,
    plain_task,
    prompt_texts,
    read_attempt,
    read_object,
)
from apps.gym.taskfile import RowRefused, parse_line
from apps.gym.taskfiles.limits import BadRow
from apps.gym.taskfiles.lines import LineReader
from apps.tasks.models import Dataset, DatasetVersion
from apps.tasks.uploading import upload_file

MAX_ERRORS = 100
MAX_INDEX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BadLine:
    file: str
    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.message}"


class ImportRefused(Exception):
    """Nothing was stored; `errors` are the first bad lines, if that is why, of `count` in all."""

    def __init__(self, message: str, errors: Sequence[BadLine] = (), count: int = 0) -> None:
        super().__init__(message)
        self.errors = list(errors)
        self.count = count or len(self.errors)


@dataclass(frozen=True, slots=True)
class File:
    """One file to import: `stream` is read more than once, so it can be wound back."""

    name: str
    stream: IO[bytes]


class StoredFiles:
    """What the files hold: tasks go to a file on disk, of a rollout stays which task it attempts."""

    def __init__(self, environment: str, tasks: IO[bytes], *, keep_good: bool) -> None:
        self.environment = environment
        self._tasks = tasks
        self.keep_good = keep_good
        self.errors: list[BadLine] = []
        self.refused = 0
        self.count = 0
        self.repeats = 0
        self.model = ""
        self.places: dict[tuple[int, int], tuple[int, int]] = {}
        """(file, line) → (task, repeat)"""
        self._offsets: list[int] = []
        self._by_prompt: dict[str, list[int]] = defaultdict(list)
        self._by_index: dict[int, int] = {}
        self._own: dict[object, int] = {}
        self._lengths: set[int] = set()
        self._taken: dict[int, set[int]] = defaultdict(set)

    # -- first pass: tasks

    def read_tasks(self, files: Sequence[File]) -> None:
        for _, number, file, line in self._lines(files):
            try:
                row = read_object(line)
                if line_kind(row) == "task":
                    self._take_task(row, line)
            except RowRefused as refusal:
                self._refuse(file, number, refusal)

    def _take_task(self, row: dict[str, Any], line: bytes) -> None:
        parse_line(line)
        if ROLLOUT_INDEX not in row:
            self._add_task(row, line)
            return
        # Materialised inputs: one row for each rollout of a task.
        index = row.get(TASK_INDEX)
        if isinstance(index, int) and index in self._by_index:
            return
        task = plain_task(row)
        number = self._add_task(task, dump_json(task).encode())
        if isinstance(index, int):
            self._by_index[index] = number

    def _add_task(self, task: TaskRow, text: bytes) -> int:
        number = len(self._offsets)
        self._tasks.seek(0, 2)
        self._offsets.append(self._tasks.tell())
        self._tasks.write(text + b"\n")
        texts = prompt_texts(task)
        self._lengths.add(len(texts))
        self._by_prompt[_hash(texts)].append(number)
        return number

    # -- second pass: which task each rollout attempts, and whether it can be stored

    def read_rollouts(self, files: Sequence[File]) -> None:
        for place, number, file, line in self._lines(files):
            try:
                row = read_object(line)
            except RowRefused:
                continue  # told in the first pass
            if line_kind(row) == "task":
                continue
            try:
                check_task(own_task(row))
                attempt = read_attempt(row, {}, environment=self.environment)
            except RowRefused as refusal:
                self._refuse(file, number, refusal)
                continue
            task = self._find_task(row, place)
            self.places[place, number] = task, self._repeat(task, row)
            self.count += 1
            self.model = self.model or attempt.model

    def _find_task(self, row: dict[str, Any], place: int) -> int:
        index = row.get(TASK_INDEX)
        if isinstance(index, int) and index in self._by_index:
            return self._by_index[index]
        texts = prompt_texts(row)
        # The whole prompt, else the longest task that it begins with: environments add their first observation.
        for length in sorted((one for one in self._lengths if one <= len(texts)), reverse=True):
            if found := self._by_prompt.get(_hash(texts[:length])):
                return index if isinstance(index, int) and index in found else found[0]
        task = own_task(row)
        key: object = (place, index) if isinstance(index, int) else _hash(dump_json(task))
        if key not in self._own:
            # Not among the prompts: what one row keeps of its task is no task for the others.
            self._tasks.seek(0, 2)
            self._own[key] = len(self._offsets)
            self._offsets.append(self._tasks.tell())
            self._tasks.write(dump_json(task).encode() + b"\n")
        return self._own[key]

    def _repeat(self, task: int, row: dict[str, Any]) -> int:
        wanted, taken = row.get(ROLLOUT_INDEX), self._taken[task]
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= MAX_INDEX or wanted in taken:
            wanted = len(taken)
            while wanted in taken:
                wanted += 1
        taken.add(wanted)
        self.repeats = max(self.repeats, len(taken))
        return wanted

    def check(self) -> None:
        if self.refused and not self.keep_good:
            were = "line was" if self.refused == 1 else "lines were"
            message = f"{self.refused:,} {were} refused, so nothing was stored. {self.errors[0]}"
            raise ImportRefused(message, self.errors, self.refused)
        if not self.count:
            raise ImportRefused(
                "The files hold no rollouts: rows with `response` and `reward`.", self.errors, self.refused
            )

    # -- what was read

    def store_tasks(self, dataset: Dataset, files: Sequence[File], user: User | None) -> DatasetVersion:
        """The tasks as a version of the dataset; the latest one where it holds just these."""
        self._tasks.seek(0)
        latest = dataset.latest_version()
        if latest is not None and latest.content_hash == self._content_hash():
            return latest
        self._tasks.seek(0)
        upload = upload_file(dataset=dataset, stream=self._tasks, filename=files[0].name, user=user)
        if upload.version is None:
            raise ImportRefused(f"The tasks of the rollouts were refused: {upload.message}")
        return upload.version

    def _content_hash(self) -> str:
        whole = hashlib.sha256()
        for _, line in LineReader(self._tasks, max_line_bytes=settings.MAX_LINE_BYTES):
            if isinstance(line, bytes):
                whole.update(parse_line(line).row_json.encode() + b"\n")
        return whole.hexdigest()

    def task(self, number: int) -> TaskRow:
        self._tasks.seek(self._offsets[number])
        return read_object(self._tasks.readline())

    def attempts(self, files: Sequence[File]) -> Iterator[tuple[int, int, StoredAttempt]]:
        """Third pass: (task, repeat, attempt) of every rollout that was taken."""
        for place, number, _, line in self._lines(files):
            if (place, number) in self.places:
                task, repeat = self.places[place, number]
                yield task, repeat, read_attempt(read_object(line), self.task(task), environment=self.environment)

    def _lines(self, files: Sequence[File]) -> Iterator[tuple[int, int, str, bytes]]:
        first = not self.places and not self._offsets and not self.refused
        for place, file in enumerate(files):
            file.stream.seek(0)
            for number, line in LineReader(file.stream, max_line_bytes=settings.MAX_LINE_BYTES):
                leaving.check()
                if isinstance(line, bytes):
                    yield place, number, file.name, line
                elif first:
                    self._refuse(file.name, number, _too_long(line))

    def _refuse(self, file: str, number: int, refusal: RowRefused) -> None:
        self.refused += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(BadLine(file, number, refusal.code, refusal.message))


def _too_long(line: BadRow) -> RowRefused:
    return RowRefused(line.code, line.message)


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode(errors="replace")).hexdigest()
