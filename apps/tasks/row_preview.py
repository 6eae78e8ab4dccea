"""Preview the first rows of a file as tasks, for choosing a column mapping."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from apps.gym.redaction.redactor import Redactor
from apps.gym.redaction.shortening import cut
from apps.gym.storable import clean_line
from apps.gym.tasks.expected_answers import find_expected
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.files.file_limits import BadRow, FileRefused
from apps.gym.tasks.files.row_source import open_rows
from apps.gym.tasks.mappings.column_mapping import Mapping, read_mapping, write_mapping
from apps.gym.tasks.mappings.leftovers import Leftovers, warn_about_attempts, warn_about_unmapped
from apps.gym.tasks.mappings.shapes import find_shape
from apps.gym.tasks.task_rows import parse_line
from apps.gym.traces.items import dump_json
from apps.policies.installation_redactor import fresh_redactor
from apps.tasks.file_tasks import check_images, parsed_sample, row_parser, upload_limits
from apps.tasks.models import Upload
from apps.tasks.received_files import parts_file

PREVIEWED_ROWS = 50
PREVIEWED_BYTES = 8 * 1024**2
MAX_COLUMNS = 200
SHOWN_CHARS = 200


@dataclass
class PreviewRow:
    line: int
    row: dict[str, Any] | None = None
    external_id: str = ""
    prompt: str = ""
    expected: str = ""
    split: str = ""
    tags: list[str] = field(default_factory=list)
    error: dict[str, Any] | None = None
    has_credentials: bool = False


@dataclass
class Column:
    """A column: a path in the rows with an example value. `rows` counts the rows with a value."""

    path: str
    example: str
    rows: int


@dataclass
class Preview:
    format: str = ""
    packing: str = ""
    shape: str = "unknown"
    mapping: dict[str, Any] | None = None
    columns: list[dict[str, Any]] = field(default_factory=list)
    rows: list[PreviewRow] = field(default_factory=list)
    problem: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def invalid(self) -> list[PreviewRow]:
        return [row for row in self.rows if row.error]


def preview_upload(*, upload: Upload, mapping: dict[str, Any] | None = None) -> Preview:
    """Return the first rows as tasks, using the given mapping, the upload's own, or a detected one.

    Raise MappingRefused.
    """
    preview, redactor = Preview(), fresh_redactor()
    try:
        with parts_file(upload).open("rb") as stream:
            lines, header = _read(stream, upload, preview)
    except FileNotFoundError:
        preview.problem = "The file is missing."
        return preview
    sample = parsed_sample([row for _, row in lines])
    preview.shape, found = find_shape(sample, header)
    given = mapping or upload.mapping
    chosen = read_mapping(given) if given else found
    preview.mapping = write_mapping(chosen) if chosen else None
    preview.notes = _notes(chosen, sample, is_found=chosen == found)
    preview.rows = [_preview_row(number, row, chosen, redactor) for number, row in lines]
    if suspected := sum(row.has_credentials for row in preview.rows):
        first = f"of the first {len(lines):,} rows" if len(lines) > 1 else "of 1 row"
        preview.notes.append(f"Suspected credentials in {suspected:,} {first}. They are masked here.")
    # In place: the rows are not used afterwards.
    preview.columns = [
        vars(column) for column in find_columns(redactor.redact_value(sample)[0], redactor.redact_value(header)[0])
    ]
    return preview


def _notes(mapping: Mapping | None, rows: list[dict[str, Any]], *, is_found: bool) -> list[str]:
    """Return warnings about columns. A detected mapping may have missed parts of the prompt or an answer."""
    if mapping is None:
        return [told] if is_found and (told := warn_about_attempts(rows)) else []
    leftovers = Leftovers(mapping)
    for row in rows if is_found else ():
        leftovers.add(row)
    unmapped = fresh_redactor().redact_text(warn_about_unmapped(mapping, rows, exclude=leftovers.names))[0]
    return [clean_line(told, 2000) for told in (leftovers.warning, unmapped) if told]


def _read(stream: Any, upload: Upload, preview: Preview) -> tuple[list[tuple[int, bytes | BadRow]], list[str]]:
    """Return the first rows, and the column names if the file has a header."""
    lines: list[tuple[int, bytes | BadRow]] = []
    header: list[str] = []
    size = 0
    try:
        file = open_rows(stream, filename=upload.filename, limits=upload_limits())
        preview.format, preview.packing = file.format, file.packing
        for number, row in islice(file.rows, PREVIEWED_ROWS):
            lines.append((number, row))
            header = file.header
            size += len(row) if isinstance(row, bytes) else 0
            if size > PREVIEWED_BYTES:
                break
    except FileRefused as refused:
        preview.problem = fresh_redactor().redact_text(refused.message)[0]
    return lines, header


def _preview_row(number: int, line: bytes | BadRow, mapping: Mapping | None, redactor: Redactor) -> PreviewRow:
    """Return the row as pages show it, with credentials masked."""
    try:
        if isinstance(line, BadRow):
            raise RowRefused(line.code, line.message)
        check_images(line)
        task = row_parser(mapping)(line)
        text, found = redactor.redact_json(task.row_json)
        task = parse_line(text.encode()) if found else task
    except RowRefused as error:
        message, pointer = (redactor.redact_text(one)[0] for one in (error.message, error.pointer))
        return PreviewRow(number, error={"line": number, "pointer": pointer, "code": error.code, "message": message})
    return PreviewRow(
        number, row=task.row, external_id=task.external_id, prompt=task.prompt_excerpt,
        expected=find_expected(task.row), split=task.split, tags=list(task.tags), has_credentials=bool(found),
    )  # fmt: skip


def find_columns(rows: list[dict[str, Any]], header: Iterable[str] = ()) -> list[Column]:
    """Return the top-level columns and those one level below, in order of occurrence."""
    columns: dict[str, Column] = {}
    for name in header:
        _note(columns, name, None)
    for row in rows:
        for name, value in row.items():
            _note(columns, name, value)
            if isinstance(value, dict):
                for inner, one in value.items():
                    _note(columns, f"{name}.{inner}", one)
    return list(columns.values())


def _note(columns: dict[str, Column], path: str, value: Any) -> None:
    if path not in columns and len(columns) < MAX_COLUMNS:
        columns[path] = Column(path, "", 0)
    if value is None or path not in columns:
        return
    column = columns[path]
    if not column.rows:
        text = value if isinstance(value, str) else dump_json(value)
        column.example = cut(" ".join(cut(text, 4 * SHOWN_CHARS).split()), SHOWN_CHARS)
    column.rows += 1
