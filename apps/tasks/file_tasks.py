"""Read the tasks of an uploaded file, without credentials. Rows that are not tasks are listed as rejected."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from django.conf import settings

from apps.accounts.disk_space import check_folder
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.files.file_limits import BadRow, Limits, Readable
from apps.gym.tasks.files.row_source import open_rows
from apps.gym.tasks.mappings.column_mapping import Mapping, apply_mapping, read_mapping, write_mapping
from apps.gym.tasks.mappings.leftovers import Leftovers, tell_of_attempts
from apps.gym.tasks.mappings.shapes import find_shape
from apps.gym.tasks.task_rows import ParsedTask, parse_changed, parse_line
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.registry import read_verifier
from apps.policies.installation_redactor import fresh_redactor
from apps.tasks.models import Upload
from apps.tasks.rejected_rows import Rejects
from apps.tasks.row_matching import hash_text, key_of
from apps.tasks.row_requirements import check_verifiable
from apps.tasks.row_sample import parsed_sample, take_sample
from apps.tasks.upload_turns import owned


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


@dataclass(frozen=True, slots=True)
class FileTask:
    """A task of the file; `key` identifies it across versions."""

    line: int
    task: ParsedTask
    row_hash: str
    key: str


class FileTasks:
    """Iterate once: a task for each row, None for a rejected one. Raises FileRefused if the file cannot be read on."""

    def __init__(self, *, upload: Upload, stream: Readable, rejects: Rejects, counts: Counter[str]) -> None:
        self._upload, self._rejects, self._counts = upload, rejects, counts
        self._file = open_rows(stream, filename=upload.filename, limits=upload_limits())
        self._redactor = fresh_redactor()
        environment = upload.dataset.environment
        self._verifies_here = environment.verifies_here
        self._verifier = read_verifier(environment.verifier) if environment.verifier else None
        self._leftovers: Leftovers | None = None
        self._attempts = ""
        self.lines = 0

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    @property
    def left_out(self) -> str:
        """What people are told of columns that were not taken for what they are called, or nothing."""
        return self._leftovers.told if self._leftovers else self._attempts

    def __iter__(self) -> Iterator[FileTask | None]:
        rows = iter(self._file.rows)
        sample = take_sample(rows)
        parse = self._parser([row for _, row in sample])
        lines = chain(sample, rows)
        # The first rows may be large: they are not held while the others are read.
        del sample
        for number, line in lines:
            self.lines += 1
            yield self._read(number, line, parse)

    def reject(self, line: int, error: RowRefused, text: bytes) -> None:
        """List the row for people to download and correct, without credentials."""
        clean, found = self._redactor.redact_text(text.decode(errors="replace"))
        text = clean.encode() if found else text
        self._rejects.add(line=line, code=error.code, message=error.message, text=text, pointer=error.pointer)

    def _read(self, number: int, line: bytes | BadRow, parse: Callable[[bytes], ParsedTask]) -> FileTask | None:
        if isinstance(line, BadRow):
            self.reject(number, RowRefused(line.code, line.message), line.head)
            return None
        try:
            task = self._clean(parse(line))
            if self._verifies_here:
                check_verifiable(task, self._verifier)
        except RowRefused as error:
            self.reject(number, error, line)
            return None
        row_hash = hash_text(task.row_json.encode())
        return FileTask(number, task, row_hash, key_of(task.external_id, row_hash))

    def _clean(self, task: ParsedTask) -> ParsedTask:
        text, found = self._redactor.redact_json(task.row_json)
        if not found:
            return task
        self._counts["redacted"] += 1
        return parse_line(text.encode())

    def _parser(self, sample: list[bytes | BadRow]) -> Callable[[bytes], ParsedTask]:
        """Decide by the first rows how a row becomes a task, and store that with the upload."""
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
        if mapping == suggested:
            # Nobody said what these columns are: people are told what they were not taken for.
            self._leftovers = Leftovers(mapping)
        return partial(parse_changed, change=partial(self._change, mapping))

    def _change(self, mapping: Mapping, row: TaskRow) -> TaskRow:
        if self._leftovers:
            self._leftovers.look(row)
        return apply_mapping(mapping, row)
