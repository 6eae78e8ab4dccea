"""Read the first row of a finished export."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import orjson

from apps.exports.export_folders import rows_path
from apps.exports.models import Export

LONGEST = 256 * 1024
"""Maximum bytes returned. A longer row is cut."""
MAX_COLUMN_BYTES = 32 * 1024**2
"""Larger columns of a Parquet row group are not read."""


class _Damaged(Exception):
    """Raised for a Parquet file that cannot be read, or has no rows."""


def read_first_row(export: Export) -> str:
    """Return the first row of the first file with rows, as JSON.

    Empty for unfinished exports, and if the file was removed or is damaged.
    """
    if export.state != Export.State.READY or not export.files:
        return ""
    path = rows_path(export, export.files[0]["name"])
    if path.suffix not in {".jsonl", ".gz", ".parquet"}:
        return ""
    try:
        line = _read_parquet(path) if path.suffix == ".parquet" else _read_line(path)
    except (OSError, EOFError, zlib.error, _Damaged):
        return ""
    return line.decode(errors="replace").strip()


def _read_line(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        line: bytes = file.readline(LONGEST)
        return line


def _read_parquet(path: Path) -> bytes:
    """Return the first row as JSON. Images, and columns above MAX_COLUMN_BYTES, are replaced by a short text."""
    # Imported lazily: it takes 50 MB and a third of a second.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, buffer_size=64 * 1024, pre_buffer=False) as file:
            if not file.metadata.num_rows:
                raise _Damaged
            fields = list(file.schema_arrow)
            sizes = _column_sizes(file.metadata.row_group(0))
            read = [
                # Of images, only the empty paths are read, to count them.
                f"{field.name}.list.element.path" if _has_images(field.type) else field.name
                for field in fields
                if _has_images(field.type) or sizes[field.name] <= MAX_COLUMN_BYTES
            ]
            [found, *_] = next(file.iter_batches(1, row_groups=[0], columns=read, use_threads=False)).to_pylist()
        row = {
            field.name: _value(found[field.name], field.type)
            if field.name in found
            else f"(column of {sizes[field.name]:,} bytes)"
            for field in fields
        }
    except (pa.ArrowException, orjson.JSONDecodeError) as error:
        raise _Damaged from error
    return orjson.dumps(row)[:LONGEST]


def _column_sizes(group: Any) -> dict[str, int]:
    """Return the size of each column of a row group, decompressed, in bytes."""
    sizes: dict[str, int] = {}
    for place in range(group.num_columns):
        column = group.column(place)
        name = column.path_in_schema.partition(".")[0]
        sizes[name] = sizes.get(name, 0) + column.total_uncompressed_size
    return sizes


def _has_images(kind: Any) -> bool:
    import pyarrow as pa

    is_list: bool = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
    return is_list and "bytes" in {field.name for field in kind.value_type}


def _value(value: Any, kind: Any) -> Any:
    """Return a value of a column as the value that it has in JSON lines."""
    import pyarrow as pa

    if _has_images(kind):
        return f"({len(value):,} image{'' if len(value) == 1 else 's'})"
    if isinstance(kind, pa.JsonType):
        return orjson.loads(value)
    if pa.types.is_list(kind) and isinstance(kind.value_type, pa.JsonType):
        return [orjson.loads(one) for one in value]
    return value
