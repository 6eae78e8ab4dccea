"""Read the lines of stored rollouts and their tasks, and check every line before anything is stored."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from apps.accounts.models import User
from apps.gym import process_exit
from apps.gym.request_refusals import Refusal
from apps.gym.rollout_files.rollout_rows import (
    ROLLOUT_INDEX,
    TASK_INDEX,
    StoredAttempt,
    check_task,
    plain_task,
    read_object,
)
from apps.gym.rollout_files.shapes.session_lines import join_sessions
from apps.gym.rollout_files.shapes.stored_rows import RolloutFormat, StoredLine, read_line
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.files.file_limits import FileRefused
from apps.gym.tasks.files.lines import LineReader
from apps.gym.tasks.files.streams import Counted, unpack
from apps.gym.tasks.task_rows import parse_line
from apps.gym.traces.items import TaskRow, dump_json
from apps.policies.installation_redactor import fresh_redactor
from apps.rollouts.imports.line_index import MAX_REPEAT, LineIndex
from apps.rollouts.imports.task_finding import TaskFinder, hash_of
from apps.tasks.file_tasks import upload_limits
from apps.tasks.models import Dataset, DatasetVersion
from apps.tasks.upload_jobs import upload_file
from apps.tasks.upload_turns import DatasetIsBusy

MAX_ERRORS = 100
MAX_INDEX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BadLine:
    file: str
    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.message} ({self.code})"


class ImportRefused(Refusal, code="import-refused"):
    """Raised if the files cannot be imported; nothing was stored. `errors` are the first bad lines of `count`."""

    def __init__(self, message: str, errors: Sequence[BadLine] = (), count: int = 0) -> None:
        super().__init__(message)
        self.errors = list(errors)
        self.count = count or len(self.errors)

    @property
    def members(self) -> dict[str, Any]:
        return {"errors": [asdict(line) for line in self.errors]}


@dataclass(frozen=True, slots=True)
class File:
    """One file to import. `stream` must be seekable, because it is read more than once."""

    name: str
    stream: IO[bytes]


class StoredFiles:
    """The parsed files. Tasks and positions are kept in files in `folder`, so memory does not grow with the lines."""

    def __init__(self, environment: str, folder: Path, *, wanted: RolloutFormat = "auto", keep_good: bool) -> None:
        self.environment = environment
        self.keep_good = keep_good
        self.errors: list[BadLine] = []
        self.refused = 0
        self.count = 0
        self.superseded = 0
        self.repeated = 0
        self.model = ""
        self._wanted: RolloutFormat = wanted
        self._found = (folder / "found.jsonl").open("w+b")
        self._tasks = (folder / "tasks.jsonl").open("w+b")
        self._starts: array[int] = array("Q")
        """Offset of each row in `_tasks`."""
        self.index = LineIndex(folder)
        self.finder = TaskFinder(self.index, self._found)
        self._told = False
        """Whether unreadable lines were already reported."""

    def close(self) -> None:
        self._found.close()
        self._tasks.close()
        self.index.close()

    # -- first pass: tasks

    def read_tasks(self, files: Sequence[File]) -> None:
        for _, number, file, line in self._lines(files):
            try:
                given = read_line(line, self._wanted)
                if given.kind == "task":
                    self._take_task(given, line)
                elif given.kind == "metadata":
                    self.model = self.model or given.model
            except RowRefused as refusal:
                self._refuse(file, number, refusal)
        self._told = True

    def _take_task(self, given: StoredLine, line: bytes) -> None:
        row = given.row
        if ROLLOUT_INDEX not in row:
            parse_line(line)
            self._add_task(row, line)
            return
        # Materialised inputs: one row for each rollout of a task.
        index = _index(row, TASK_INDEX, MAX_INDEX)
        _index(row, ROLLOUT_INDEX, MAX_REPEAT)
        parse_line(line)
        task = plain_task(row)
        if index is not None and self.finder.is_named(index, task):
            return
        number = self._add_task(task, dump_json(task).encode(), given=index)
        if index is not None:
            self.index.name_task(index, number)

    def _add_task(self, task: TaskRow, text: bytes, *, given: int | None = None) -> int:
        number = self.finder.add_row(text, given=given)
        self.finder.add_prompt(number, task)
        return number

    # -- second pass: match each rollout to a task, and check that it can be stored

    def read_rollouts(self, files: Sequence[File]) -> None:
        for place, number, file, line in self._lines(files):
            try:
                given = read_line(line, self._wanted)
            except RowRefused:
                continue  # reported in the first pass
            if given.kind in ("task", "metadata"):
                continue
            try:
                index, repeat = _index(given.row, TASK_INDEX, MAX_INDEX), _index(given.row, ROLLOUT_INDEX, MAX_REPEAT)
                given = self.finder.complete(given, index)
                check_task(given.task)
                attempt = given.attempt({}, environment=self.environment)
                task = self.finder.find_task(given, index, place)
                failed = given.kind == "failure"
            except RowRefused as refusal:
                self._refuse(file, number, refusal)
                continue
            numbered = index is not None and repeat is not None and not failed
            if numbered and not self.index.note_line(place, hash_of(line)):
                self.repeated += 1
                continue
            self.index.note_number(index, repeat, task=task)
            added = self.index.add_rollout(task=task, repeat=repeat, file=place, line=number, failed=failed)
            self.count += added
            self.superseded += not added
            self.model = self.model or attempt.model
        for start in self.index.order_tasks():
            self._found.seek(start)
            self._starts.append(self._tasks.tell())
            self._tasks.write(self._found.readline())

    def check(self) -> None:
        if self.refused and not self.keep_good:
            were = "line was" if self.refused == 1 else "lines were"
            message = f"{self.refused:,} {were} rejected, so nothing was stored. {self.errors[0]}"
            raise ImportRefused(message, self.errors, self.refused)
        if not self.count:
            raise ImportRefused(
                "The files hold no rollouts: rows with `response` and `reward`, with `prompt` and `completion`, with "
                "`messages` or with `steps`, or session files.",
                self.errors,
                self.refused,
            )

    # -- parsed input

    def store_tasks(self, dataset: Dataset, files: Sequence[File], user: User | None) -> DatasetVersion:
        """Store the tasks as a version of the dataset. Return the latest version if it has exactly these tasks."""
        self._tasks.seek(0)
        latest = dataset.latest_version()
        if latest is not None and latest.content_hash == self._content_hash():
            return latest
        self._tasks.seek(0)
        try:
            upload = upload_file(
                dataset=dataset, stream=self._tasks, filename=files[0].name, user=user, samples_gold=False
            )
        except DatasetIsBusy as busy:
            raise ImportRefused(str(busy)) from None
        if upload.version is None:
            raise ImportRefused(f"The tasks of the rollouts were rejected: {upload.message}")
        return upload.version

    def _content_hash(self) -> str:
        whole = hashlib.sha256()
        for _, line in LineReader(self._tasks, max_line_bytes=settings.MAX_LINE_BYTES):
            if isinstance(line, bytes):
                whole.update(parse_line(line).row_json.encode() + b"\n")
        return whole.hexdigest()

    def attempts(self, files: Sequence[File]) -> Iterator[tuple[int, int, StoredAttempt]]:
        """Third pass: yield (task, repeat, attempt) of every accepted rollout."""
        lines = self._lines(files)
        numbered = self.index.fits_together()
        for file, number, task, repeat in self.index.rollouts():
            line = next(text for place, at, _, text in lines if (place, at) == (file, number))
            self._tasks.seek(self._starts[task])
            row = read_object(self._tasks.readline())
            given = read_line(line, self._wanted)
            yield task, repeat, given.attempt(row, environment=self.environment, numbered=numbered)

    def _lines(self, files: Sequence[File]) -> Iterator[tuple[int, int, str, bytes]]:
        for place, file in enumerate(files):
            file.stream.seek(0)
            number = 0
            try:
                content, _ = unpack(Counted(file.stream, process_exit.check), upload_limits())
                lines = LineReader(content, max_line_bytes=settings.MAX_LINE_BYTES)
                for number, line in join_sessions(lines, self._wanted, max_bytes=settings.MAX_LINE_BYTES):
                    process_exit.check()
                    if isinstance(line, bytes):
                        yield place, number, file.name, line
                    elif not self._told:
                        self._refuse(file.name, number, RowRefused(line.code, line.message))
            except RowRefused as refusal:
                # A session is one rollout, so its first bad line rejects all of it.
                if not self._told:
                    self._refuse(file.name, refusal.line, refusal)
            except FileRefused as refusal:
                # A truncated compressed file has an unknown end, so its good lines are not a complete run.
                broken = _bad_line(file.name, number + 1, refusal.code, refusal.message)
                raise ImportRefused(f"Nothing was stored. {broken}", [broken]) from None

    def _refuse(self, file: str, number: int, refusal: RowRefused) -> None:
        self.refused += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(_bad_line(file, refusal.line or number, refusal.code, refusal.message))


def _bad_line(file: str, line: int, code: str, message: str) -> BadLine:
    """Return a BadLine with redacted texts, because both may quote credentials in the file."""
    redactor = fresh_redactor()
    return BadLine(redactor.redact_text(file)[0], line, code, redactor.redact_text(message)[0])


def _index(row: dict[str, Any], name: str, most: int) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise RowRefused("wrong_index", f"must be a whole number from 0 to {most:,}", pointer=f"/{name}")
    return value
