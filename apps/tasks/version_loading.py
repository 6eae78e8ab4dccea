"""Rows of a file become the tasks of a version that stays invisible until all of them are in."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.disk_space import Place, check_folder, check_growth, check_space
from apps.gym import process_exit
from apps.gym.resources.own_verifier import ROW_FIELD
from apps.gym.tasks.dataset_metrics import DatasetMetrics
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.files.file_limits import BadRow, Limits, Readable
from apps.gym.tasks.files.row_source import OpenFile, open_rows
from apps.gym.tasks.mappings.column_mapping import Mapping, apply_mapping, read_mapping, write_mapping
from apps.gym.tasks.mappings.leftovers import Leftovers, tell_of_attempts
from apps.gym.tasks.mappings.shapes import find_shape
from apps.gym.tasks.task_rows import ParsedTask, parse_changed, parse_line, read_marks
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.registry import read_verifier
from apps.policies.installation_redactor import fresh_redactor
from apps.tasks.carried_marks import Marks, carry_marks
from apps.tasks.models import DatasetVersion, Task, Upload, join_tags
from apps.tasks.rejected_rows import Rejects
from apps.tasks.row_matching import Base, Known, Seen, hash_text, key_of
from apps.tasks.row_requirements import check_verifiable, fields_needed
from apps.tasks.row_sample import parsed_sample, take_sample
from apps.tasks.task_splits import choose_split
from apps.tasks.unchanged_rows import copy_rest, measure_rows

CHUNK_ROWS = 2000
CHUNK_BYTES = 8 * 1024**2
DELETED_ROWS = 200
"""Tasks that are deleted at once. SQLite may overwrite what it deletes, which takes as much of its log: a disk that is
nearly full has little space for that."""
SIGN_OF_LIFE_SECONDS = 2.0
ROW_BYTES = 600
"""About what a task takes in the database besides its row: keys, excerpt, indexes."""


class UploadTakenAway(Exception):
    """The upload is no longer loading here: it was given up as quiet while it still worked."""


def upload_limits() -> Limits:
    return Limits(
        line_bytes=settings.MAX_LINE_BYTES,
        rows=settings.MAX_UPLOAD_ROWS,
        unpacked_bytes=settings.MAX_UNPACKED_BYTES,
        ratio=settings.MAX_UNPACK_RATIO,
        parquet_bytes=settings.PARQUET_MEMORY_BYTES,
        folder=settings.FILE_UPLOAD_TEMP_DIR,
        check_folder=check_folder,
    )


def delete_version(version: DatasetVersion) -> None:
    """Remove a version that nobody has seen, in short transactions."""
    tasks = Task.objects.filter(version=version).order_by()
    while batch := list(tasks.values_list("pk", flat=True)[:DELETED_ROWS]):
        # No rollout, pair or comment can point at a task that was never visible: no need to look for them.
        Task.objects.filter(pk__in=batch)._raw_delete(using=tasks.db)
        # What stays is an orphan, which the next sweep finds.
        process_exit.check()
    version.delete()


def owned(upload: Upload) -> QuerySet[Upload]:
    """The upload's row, as long as this attempt is the one that loads it."""
    return Upload.objects.filter(pk=upload.pk, state=Upload.State.LOADING, attempt=upload.attempt)


@dataclass(slots=True)
class _Candidate:
    """A row that is a task, before it is known what it is to the version before."""

    line: int
    task: ParsedTask
    row_hash: str
    key: str


class Loader:
    """One pass over the rows of an upload. Holds one chunk: ≤ 2,000 rows or about 8 MB.

    Without a version it only checks and counts.
    """

    def __init__(
        self,
        *,
        upload: Upload,
        version: DatasetVersion | None,
        base: DatasetVersion | None,
        stream: Readable,
        rejects: Rejects,
        seen: Seen,
    ) -> None:
        self._upload, self._version, self._base_version = upload, version, base
        self._upserts = upload.mode == Upload.Mode.UPSERT
        self._file: OpenFile = open_rows(stream, filename=upload.filename, limits=upload_limits())
        self.rejects, self._seen = rejects, seen
        self._keep_good = upload.on_error == Upload.OnError.SKIP
        self._base = Base(base)
        self._first_new = base.task_count if base else 0
        self._hash = hashlib.sha256()
        self.content_hash = ""
        self.metrics = DatasetMetrics()
        self._chunk: list[_Candidate] = []
        self._chunk_bytes = 0
        self._redactor = fresh_redactor()
        self._last_sign = time.monotonic()
        environment = upload.dataset.environment
        self._needs = fields_needed(environment)
        self._verifier = read_verifier(environment.verifier) if environment.verifier else None
        self._verifies_here = environment.verifies_here
        self.lacking: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._leftovers: Leftovers | None = None
        self._attempts = ""
        self.lines = 0
        self.accepted = 0
        self._stored_bytes = 0

    def expected_bytes(self) -> int:
        """Return about how many bytes the whole version takes, by what was stored and how much of the file was read."""
        share = self._file.bytes_read / self._upload.received_bytes if self._upload.received_bytes else 0.0
        return int(self._stored_bytes / max(share, 0.01)) if self._stored_bytes else 0

    @property
    def is_refused(self) -> bool:
        """Whether nothing will be stored, since a row was refused: the others are only checked."""
        return bool(self.rejects.count) and not self._keep_good

    def load(self) -> None:
        """Raises FileRefused where the file cannot be read to its end, UploadTakenAway where another loads it now, and
        DiskFull."""
        for candidate in self._candidates():
            self._chunk.append(candidate)
            self._chunk_bytes += len(candidate.task.row_json)
            if len(self._chunk) >= CHUNK_ROWS or self._chunk_bytes >= CHUNK_BYTES:
                self._settle()
        self._settle()
        self.counts["removed"] = self._count_removed()
        if self._upserts and self._base_version and self._version and not self.is_refused and self.accepted:
            copy_rest(base=self._base_version, version=self._version, after_chunk=self._breathe)
            self.content_hash, self.metrics = measure_rows(version=self._version, after_chunk=self._breathe)
        else:
            self.content_hash = self._hash.hexdigest()

    @property
    def task_count(self) -> int:
        """Of the new version."""
        return self._first_new + self.counts["new"] if self._upserts else self.accepted

    @property
    def left_out(self) -> str:
        """What people are told of columns that were not taken for what they are called, or nothing."""
        return self._leftovers.told if self._leftovers else self._attempts

    # -- rows out of the file --------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[_Candidate]:
        rows = iter(self._file.rows)
        sample = take_sample(rows)
        parse = self._parser([row for _, row in sample])
        for number, line in _chain(sample, rows):
            self.lines += 1
            if time.monotonic() - self._last_sign > SIGN_OF_LIFE_SECONDS:
                self._breathe()
            if isinstance(line, BadRow):
                self.rejects.add(line=number, code=line.code, message=line.message, text=self._clean_text(line.head))
                continue
            try:
                task = self._clean(parse(line))
                if self._verifies_here:
                    check_verifiable(task, self._verifier)
            except RowRefused as error:
                self._refuse(number, error, line)
                continue
            row_hash = hash_text(task.row_json.encode())
            yield _Candidate(number, task, row_hash, key_of(task.external_id, row_hash))

    def _refuse(self, number: int, error: RowRefused, text: bytes) -> None:
        text = self._clean_text(text)
        self.rejects.add(line=number, code=error.code, message=error.message, text=text, pointer=error.pointer)

    def _clean(self, task: ParsedTask) -> ParsedTask:
        """The task as it is stored: without credentials. Nearly all are as they came."""
        text, found = self._redactor.redact_json(task.row_json)
        if not found:
            return task
        self.counts["redacted"] += 1
        return parse_line(text.encode())

    def _clean_text(self, text: bytes) -> bytes:
        # Of a row that is refused, which people download to mend it.
        clean, found = self._redactor.redact_text(text.decode(errors="replace"))
        return clean.encode() if found else text

    def _parser(self, sample: list[bytes | BadRow]) -> Callable[[bytes], ParsedTask]:
        parsed = parsed_sample(sample)
        shape, suggested = find_shape(parsed, self._file.header)
        mapping: Mapping | None = suggested
        if self._upload.mapping:
            shape, mapping = self._upload.shape, read_mapping(self._upload.mapping)
        found = {
            "format": self._file.format,
            "packing": self._file.packing,
            "shape": shape,
            "mapping": write_mapping(mapping) if mapping else None,
        }
        for name, value in found.items():
            setattr(self._upload, name, value)
        owned(self._upload).update(**found)
        if mapping is None:
            self._attempts = tell_of_attempts(parsed)
            return parse_line
        chosen = mapping
        if chosen != suggested:
            return lambda line: parse_changed(line, lambda row: apply_mapping(chosen, row))
        # Nobody said what these columns are: people are told what they were not taken for.
        leftovers = self._leftovers = Leftovers(chosen)

        def change(row: TaskRow) -> TaskRow:
            leftovers.look(row)
            return apply_mapping(chosen, row)

        return lambda line: parse_changed(line, change)

    # -- tasks into the version ------------------------------------------------------------------------------------

    def _settle(self) -> None:
        known = self._base.find([(candidate.key, candidate.row_hash) for candidate in self._chunk])
        said = self._said_before(known)
        tasks = []
        for candidate in self._chunk:
            before = known.get(candidate.key)
            first_line = self._seen.first_line(candidate.key, candidate.row_hash, candidate.line, before)
            if first_line is not None and not self._take_duplicate(candidate, first_line):
                continue
            if self._upserts and before and before.count > 1 and not self._stays(candidate, before):
                message = "the version before has several tasks of this id: none of them can be replaced"
                self._refuse(candidate.line, RowRefused("ambiguous_id", message), candidate.task.row_json.encode())
                continue
            change = "new" if before is None else "unchanged" if before.copies[candidate.row_hash] else "updated"
            index = self.accepted
            if self._upserts:
                index = before.index if before else self._first_new + self.counts["new"]
            if first_line is None:
                self.counts[change] += 1
            else:
                self.counts.update(self._seen.count_later(candidate.key, candidate.row_hash, before))
            marks = carry_marks(candidate.task, before, said=said.get(candidate.key), chosen=self._choose(candidate))
            fields = self._accept(candidate, marks)
            # A row that an upsert leaves as it is comes with the rest, unless the split that was chosen moves it.
            is_of_rest = before and change == "unchanged" and (before.count > 1 or marks.split == before.split)
            if self._version and not (self._upserts and is_of_rest):
                tasks.append(
                    Task(dataset_id=self._upload.dataset_id, version_id=self._version.pk, index=index, **fields)
                )
        self._chunk, self._chunk_bytes = [], 0
        if tasks and not self.is_refused:
            coming = sum(len(task.row_json) + ROW_BYTES for task in tasks)
            self._stored_bytes += coming
            check_growth(coming)
            Task.objects.bulk_create(tasks)
        self._breathe()

    def _stays(self, candidate: _Candidate, before: Known) -> bool:
        """Whether the row leaves each of several tasks as it is."""
        return before.copies[candidate.row_hash] == before.count and not self._choose(candidate)

    def _take_duplicate(self, candidate: _Candidate, first_line: int) -> bool:
        self.counts["duplicate"] += 1
        if self._upload.on_duplicate == Upload.OnDuplicate.REJECT:
            what = f"the id {candidate.task.external_id}" if candidate.task.external_id else "the same row"
            error = RowRefused("duplicate", f"{what} stands in line {first_line:,} already")
            self._refuse(candidate.line, error, candidate.task.row_json.encode())
        return self._upload.on_duplicate == Upload.OnDuplicate.KEEP

    def _said_before(self, known: dict[str, Known]) -> dict[str, Marks]:
        """By their keys, what the rows of the version before said themselves; of those whose key is their own."""
        said: dict[str, Marks] = {}
        places: dict[int, str] = {}
        for candidate in self._chunk:
            before = known.get(candidate.key)
            if before is None or before.count > 1:
                continue
            if before.copies[candidate.row_hash]:
                said[candidate.key] = Marks(candidate.task.split, candidate.task.tags)
            elif before.split or before.tags or candidate.task.split or candidate.task.tags:
                places[before.index] = candidate.key
            else:
                said[candidate.key] = Marks("", ())
        for index, row in self._base.rows(places):
            said[places[index]] = Marks(*read_marks(row))
        return said

    def _choose(self, candidate: _Candidate) -> str:
        """The split of a row that names none, as far as one was chosen."""
        if self._upload.split or not self._upload.split_ratios:
            return self._upload.split
        return choose_split(key=candidate.key, ratios=self._upload.split_ratios, seed=self._upload.split_seed)

    def _accept(self, candidate: _Candidate, marks: Marks) -> dict[str, Any]:
        """Count the row, and what is stored of it."""
        task = candidate.task
        text = task.row_json.encode()
        self._hash.update(text)
        self._hash.update(b"\n")
        self.metrics.add(task.row, size=len(text), split=marks.split, tags=marks.tags)
        self.accepted += 1
        if not (self._verifies_here and ROW_FIELD in task.row):
            self.lacking.update(self._needs - task.row.keys())
        return {
            "external_id": task.external_id,
            "prompt_excerpt": task.prompt_excerpt,
            "row_json": task.row_json,
            "row_hash": candidate.row_hash,
            "key": candidate.key,
            "split": marks.split,
            "tags_text": join_tags(marks.tags),
            "is_retired": marks.is_retired,
        }

    def _count_removed(self) -> int:
        if self._upserts or self._base_version is None:
            return 0
        return max(0, self._base_version.task_count - self.counts["updated"] - self.counts["unchanged"])

    # -- signs of life -----------------------------------------------------------------------------------------------

    def _breathe(self) -> None:
        process_exit.check()
        # Between chunks, and every few seconds while rows are unpacked: a small file may become a large version.
        check_space(Place.DATABASE)
        self.report()

    def report(self) -> None:
        """Write the progress down; a sign of life that also finds out whether the upload is still ours."""
        self._last_sign = time.monotonic()
        ours = owned(self._upload).update(
            lines=self.lines,
            accepted=self.accepted,
            rejected=self.rejects.count,
            read_bytes=self._file.bytes_read,
            counts=dict(self.counts),
            touched_at=timezone.now(),
        )
        if not ours:
            raise UploadTakenAway(f"{self._upload} was given up while it was still loading")

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read


def _chain(
    first: list[tuple[int, bytes | BadRow]], rest: Iterator[tuple[int, bytes | BadRow]]
) -> Iterator[tuple[int, bytes | BadRow]]:
    yield from first
    first.clear()
    yield from rest
