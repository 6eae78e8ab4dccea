"""Lines become the tasks of a version that stays invisible until all of them are in."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import orjson
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from apps.environments.models import Adapter, Environment
from apps.gym import leaving
from apps.gym.builtin.registry import BUILTINS
from apps.gym.resources.verified import ROW_FIELD
from apps.gym.taskfile import LineReader, ParsedTask, Readable, RowRefused, TooLong, parse_line
from apps.gym.verifiers.registry import find_problems, read_verifier
from apps.tasks.models import Dataset, DatasetVersion, Task, Upload

CHUNK_ROWS = 2000
CHUNK_BYTES = 8 * 1024**2
ERRORS_ON_ROW = 100
KEPT_TEXT_BYTES = 2048
SIGN_OF_LIFE_SECONDS = 2.0


class UploadTakenAway(Exception):
    """The upload is no longer loading: it was given up as quiet while it still worked."""


def rejects_file(upload: Upload) -> Path:
    return Path(settings.UPLOADS_DIR) / f"{upload.pk}.rejected.jsonl"


def start_version(dataset: Dataset) -> DatasetVersion:
    """A loading version with the next free number; two uploads at once get two numbers."""
    while True:
        last = dataset.versions.aggregate(last=Max("number"))["last"] or 0
        try:
            with transaction.atomic():
                return DatasetVersion.objects.create(dataset=dataset, number=last + 1)
        except IntegrityError:
            continue


def delete_version(version: DatasetVersion) -> None:
    """Remove a version that nobody has seen, in short transactions."""
    tasks = Task.objects.filter(version=version).order_by()
    while batch := list(islice(tasks.values_list("pk", flat=True)[:CHUNK_ROWS].iterator(), CHUNK_ROWS)):
        # No rollout, pair or comment can point at a task that was never visible: no need to look for them.
        Task.objects.filter(pk__in=batch)._raw_delete(using=tasks.db)
        # What stays is an orphan, which the next sweep finds.
        leaving.check()
    version.delete()


def fields_needed(environment: Environment) -> frozenset[str]:
    """What the environment's verifier reads of a row, as far as that is known here: for built-in ones."""
    if not environment.verifies:
        return frozenset()
    if environment.verifies_here:
        return read_verifier(environment.verifier).needs if environment.verifier else frozenset({ROW_FIELD})
    known = BUILTINS.get(environment.builtin) if environment.adapter == Adapter.BUILTIN else None
    return known.needs if known else frozenset()


def check_own_verifier(task: ParsedTask) -> None:
    """Raises RowRefused for a task that brings a verifier of its own which cannot be one."""
    if ROW_FIELD not in task.fields:
        return
    for pointer, problem in find_problems(orjson.loads(task.row_json)[ROW_FIELD]):
        raise RowRefused("bad_verifier", f"/{ROW_FIELD}{pointer} {problem}")


class Rejects:
    """The refused lines: the first hundred for the row, all of them in a file that exists once there is one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self.count = 0
        self.first: list[dict[str, object]] = []

    def __enter__(self) -> "Rejects":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._file:
            self._file.close()

    def add(self, *, line: int, code: str, message: str, text: bytes) -> None:
        self.count += 1
        entry = {"line": line, "code": code, "message": message}
        if len(self.first) < ERRORS_ON_ROW:
            self.first.append(entry)
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb")
        cut = text[:KEPT_TEXT_BYTES].decode(errors="replace")
        self._file.write(orjson.dumps({**entry, "text": cut}, option=orjson.OPT_APPEND_NEWLINE))


class Loader:
    """One pass over the lines of an upload. Holds one chunk: ≤ 2,000 rows or about 8 MB."""

    def __init__(self, *, upload: Upload, version: DatasetVersion, stream: Readable, rejects: Rejects) -> None:
        self._upload = upload
        self._version = version
        self._lines = LineReader(stream, max_line_bytes=settings.MAX_LINE_BYTES)
        self.rejects = rejects
        self._keep_good = upload.on_error == Upload.OnError.SKIP
        self._hash = hashlib.sha256()
        self._chunk: list[Task] = []
        self._chunk_bytes = 0
        self._last_sign = time.monotonic()
        self._needs = fields_needed(upload.dataset.environment)
        self._verifies_here = upload.dataset.environment.verifies_here
        self.lacking: Counter[str] = Counter()
        self.lines = 0
        self.accepted = 0

    @property
    def content_hash(self) -> str:
        return self._hash.hexdigest()

    def load(self) -> None:
        for task in self._good_tasks():
            self._hold(task)
            if len(self._chunk) >= CHUNK_ROWS or self._chunk_bytes >= CHUNK_BYTES:
                self._write()
        self._write()

    def _good_tasks(self) -> Iterator[ParsedTask]:
        for number, line in self._lines:
            self.lines += 1
            if time.monotonic() - self._last_sign > SIGN_OF_LIFE_SECONDS:
                self.report()
            if isinstance(line, TooLong):
                message = f"{line.size:,} bytes in one line: the limit is {settings.MAX_LINE_BYTES:,}"
                self.rejects.add(line=number, code="too_long", message=message, text=line.head)
                continue
            try:
                task = parse_line(line)
                if self._verifies_here:
                    check_own_verifier(task)
                yield task
            except RowRefused as error:
                self.rejects.add(line=number, code=error.code, message=error.message, text=line)

    def _hold(self, task: ParsedTask) -> None:
        if self.rejects.count and not self._keep_good:
            # The file is refused already: the other lines are only checked.
            self._chunk.clear()
            return
        text = task.row_json.encode()
        self._hash.update(text)
        self._hash.update(b"\n")
        self._chunk_bytes += len(text)
        self._chunk.append(
            Task(
                dataset_id=self._version.dataset_id,
                version_id=self._version.pk,
                index=self.accepted,
                external_id=task.external_id,
                prompt_excerpt=task.prompt_excerpt,
                row_json=task.row_json,
            )
        )
        self.accepted += 1
        if not (self._verifies_here and ROW_FIELD in task.fields):
            self.lacking.update(self._needs - task.fields)

    def _write(self) -> None:
        if self._chunk:
            Task.objects.bulk_create(self._chunk)
        self._chunk, self._chunk_bytes = [], 0
        self.report()

    def report(self) -> None:
        """Write the progress down; a sign of life that also finds out whether the upload is still ours."""
        self._last_sign = time.monotonic()
        ours = Upload.objects.filter(pk=self._upload.pk, state=Upload.State.LOADING).update(
            lines=self.lines,
            accepted=self.accepted,
            rejected=self.rejects.count,
            received_bytes=self._lines.bytes_read,
            touched_at=timezone.now(),
        )
        if not ours:
            raise UploadTakenAway(f"{self._upload} was given up while it was still loading")
