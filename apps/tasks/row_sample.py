"""The first rows of a file, by which its shape is told: loading, a preview and rows of a stream look at the same."""

from collections.abc import Iterator

from apps.gym.tasks.file_rows import RowRefused, read_row
from apps.gym.tasks.files.file_limits import BadRow

SAMPLE_ROWS = 50
SAMPLE_BYTES = 8 * 1024**2


def take_sample(rows: Iterator[tuple[int, bytes | BadRow]]) -> list[tuple[int, bytes | BadRow]]:
    """The first rows, which tell what the others are."""
    sample, size = [], 0
    for number, row in rows:
        sample.append((number, row))
        size += len(row) if isinstance(row, bytes) else 0
        if len(sample) >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
            break
    return sample


def parsed_sample(sample: list[bytes | BadRow]) -> list[dict[str, object]]:
    """The rows of a sample that can be read at all."""
    rows = []
    for line in sample:
        if isinstance(line, bytes):
            try:
                rows.append(read_row(line)[1])
            except RowRefused:
                continue
    return rows
