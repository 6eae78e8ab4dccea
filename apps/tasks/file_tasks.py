"""Read the tasks of an uploaded file and report suspected credentials. Invalid rows are listed as rejected."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from django.conf import settings

from apps.accounts.disk_space import check_folder
from apps.environments.models import Adapter, Environment
from apps.gym.environments.registry import BUILTINS
from apps.gym.errors import JudgeError, VerifierError
from apps.gym.image_data import MAX_ROW_IMAGES, ImageRefused, image_places, read_data_url
from apps.gym.resources.own_verifier import ROW_FIELD
from apps.gym.tasks.file_rows import RowRefused, read_row
from apps.gym.tasks.files.file_limits import BadRow, Limits, Readable
from apps.gym.tasks.files.row_source import open_rows
from apps.gym.tasks.mappings.column_mapping import Mapping, apply_mapping, read_mapping, write_mapping
from apps.gym.tasks.mappings.leftovers import Leftovers, warn_about_attempts, warn_about_unmapped
from apps.gym.tasks.mappings.shapes import find_shape
from apps.gym.tasks.task_rows import ParsedTask, parse_changed, parse_line
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.protocol import Verifier
from apps.gym.verifiers.registry import find_problems, read_verifier
from apps.gym.written.registry import find_environment
from apps.policies.installation_redactor import fresh_redactor
from apps.tasks.models import Upload
from apps.tasks.rejected_rows import Rejects
from apps.tasks.row_matching import hash_text, key_of
from apps.tasks.stored_images import find_references
from apps.tasks.suspected_credentials import SuspectedCredentials
from apps.tasks.upload_turns import owned

SAMPLE_ROWS = 50
SAMPLE_BYTES = 8 * 1024**2


def take_sample(rows: Iterator[tuple[int, bytes | BadRow]]) -> list[tuple[int, bytes | BadRow]]:
    """Return the first rows, which determine how all rows are parsed."""
    sample, size = [], 0
    for number, row in rows:
        sample.append((number, row))
        size += len(row) if isinstance(row, bytes) else 0
        if len(sample) >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
            break
    return sample


def parsed_sample(sample: list[bytes | BadRow]) -> list[dict[str, object]]:
    """Return the rows of a sample that can be parsed."""
    rows = []
    for line in sample:
        if isinstance(line, bytes):
            try:
                rows.append(read_row(line)[1])
            except RowRefused:
                continue
    return rows


def row_parser(mapping: Mapping | None) -> Callable[[bytes], ParsedTask]:
    """Return a function that converts a line to a task, with a column mapping or without."""
    return partial(parse_changed, change=partial(apply_mapping, mapping)) if mapping else parse_line


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
    """A task from a file. `key` identifies it across versions."""

    line: int
    task: ParsedTask
    row_hash: str
    key: str


class FileTasks:
    """The tasks of a file.

    Iterate once: yields a task for each row, or None for a rejected one. Raise FileRefused if the rest of the file
    cannot be read.
    """

    def __init__(
        self,
        *,
        upload: Upload,
        stream: Readable,
        rejects: Rejects,
        counts: Counter[str],
        on_read: Callable[[], object],
    ) -> None:
        self._upload, self._rejects, self._counts = upload, rejects, counts
        self._file = open_rows(stream, filename=upload.filename, limits=replace(upload_limits(), on_read=on_read))
        self._redactor = fresh_redactor()
        self._suspected = SuspectedCredentials(choice=upload.on_credential, redactor=self._redactor)
        environment = upload.dataset.environment
        self._verifies_here = environment.verifies_here
        self._verifier = read_verifier(environment.verifier) if environment.verifier else None
        self._leftovers: Leftovers | None = None
        self._attempts = ""
        self._is_mapped = False
        self._unmapped = ""
        self.lines = 0

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    @property
    def final_newline(self) -> bool:
        """Return False if the last row of the stored text has no line feed. Known after the last row."""
        return self._is_mapped or self._file.ends_with_newline

    @property
    def remarks(self) -> str:
        """Return warnings about suspected credentials and about columns that detection ignored, or an empty text."""
        left_out = self._leftovers.warning if self._leftovers else self._attempts
        return " ".join(filter(None, [self._suspected.told, left_out, self._unmapped]))

    def __iter__(self) -> Iterator[FileTask | None]:
        rows = iter(self._file.rows)
        sample = take_sample(rows)
        parse = self._parser([row for _, row in sample])
        lines = chain(sample, rows)
        # Release the sample, which may be large.
        del sample
        for number, line in lines:
            self.lines += 1
            yield self._read(number, line, parse)

    def reject(self, line: int, error: RowRefused, text: bytes) -> None:
        """Add a row to the rejected rows, redacted. Users can download and correct them."""
        clean, found = self._redactor.redact_text(text.decode(errors="replace"))
        text = clean.encode() if found else text
        self._rejects.add(line=line, code=error.code, message=error.message, text=text, pointer=error.pointer)

    def _read(self, number: int, line: bytes | BadRow, parse: Callable[[bytes], ParsedTask]) -> FileTask | None:
        if isinstance(line, BadRow):
            self.reject(number, RowRefused(line.code, line.message), line.head)
            return None
        try:
            check_images(line)
            read = parse(line)
            task = self._suspected.check(read, line=number)
            self._check(task)
        except RowRefused as error:
            self.reject(number, error, line)
            return None
        if task is not read:
            self._counts["credentials"] += 1
        # Rows that differ only in surrounding white space are the same task.
        row_hash = hash_text(task.row_json.strip().encode())
        return FileTask(number, task, row_hash, key_of(read.external_id, row_hash))

    def _check(self, task: ParsedTask) -> None:
        """Raise RowRefused if no attempt at this task could be verified."""
        environment = self._upload.dataset.environment
        if self._verifies_here:
            check_verifiable(task, self._verifier)
        elif environment.builtin in BUILTINS and fields_needed(environment) <= task.row.keys():
            try:
                BUILTINS[environment.builtin].check_row(task.row, has_judge=environment.judge_model_id is not None)
            except (VerifierError, JudgeError) as error:
                raise RowRefused("not_verifiable", str(error)) from None

    def _parser(self, sample: list[bytes | BadRow]) -> Callable[[bytes], ParsedTask]:
        """Choose the parser by the first rows, and store the choice with the upload."""
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
        self._is_mapped = mapping is not None
        if mapping is None:
            self._attempts = warn_about_attempts(parsed)
            return parse_line
        if mapping == suggested:
            # Columns were not mapped by a user: report which ones the detection ignored.
            self._leftovers = Leftovers(mapping)
        if self._upload.check_only:
            sampled = Leftovers(mapping)
            for row in parsed:
                sampled.add(row)
            exclude = sampled.names if self._leftovers else ()
            self._unmapped = self._redactor.redact_text(warn_about_unmapped(mapping, parsed, exclude=exclude))[0]
        return partial(parse_changed, change=partial(self._change, mapping))

    def _change(self, mapping: Mapping, row: TaskRow) -> TaskRow:
        if self._leftovers:
            self._leftovers.add(row)
        return apply_mapping(mapping, row)


def fields_needed(environment: Environment) -> frozenset[str]:
    """Return the row fields that the environment's verifier needs, if it is a built-in verifier."""
    if not environment.verifies:
        return frozenset()
    if environment.verifies_here:
        return read_verifier(environment.verifier).needs if environment.verifier else frozenset({ROW_FIELD})
    known = find_environment(environment.builtin) if environment.adapter == Adapter.BUILTIN else None
    return known.needs if known else frozenset()


def check_images(line: bytes) -> None:
    """Raise RowRefused if the line has an invalid image, or too many images."""
    if b'"gymweb-image:' in line and find_references(line.decode(errors="replace")):
        message = "a reference to a stored image is not an image. Write the image as a data URL"
        raise RowRefused("image_reference", message)
    if b'"data:' not in line:
        return
    places = [place for place in image_places(read_row(line)[1]) if place.address.startswith("data:")]
    if len(places) > MAX_ROW_IMAGES:
        message = f"the row has {len(places):,} images: the limit is {MAX_ROW_IMAGES}"
        raise RowRefused("too_many_images", message)
    for place in places:
        try:
            read_data_url(place.address)
        except ImageRefused as error:
            raise RowRefused("bad_image", str(error), pointer=place.pointer) from None


def check_verifiable(task: ParsedTask, verifier: Verifier | None) -> None:
    """Raise RowRefused if no attempt at this task could be verified.

    Reject a task with an invalid verifier, or with an invalid value in a field that the verifier needs. A task without
    that field is accepted.
    """
    if task.row.get(ROW_FIELD) is not None:
        for pointer, problem in find_problems(task.row[ROW_FIELD]):
            raise RowRefused("bad_verifier", problem, pointer=f"/{ROW_FIELD}{pointer}")
        verifier = read_verifier(task.row[ROW_FIELD])
    if verifier is None or not verifier.needs <= task.row.keys():
        return
    try:
        verifier.check_row(task.row)
    except VerifierError as error:
        raise RowRefused("not_verifiable", str(error)) from None
