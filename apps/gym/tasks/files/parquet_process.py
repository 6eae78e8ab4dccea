"""`python -m apps.gym.tasks.files.parquet_process FD ROWS UNPACKED MEMORY ROW`: write a Parquet file as lines.

A line starts with `+` for a row, `-` for an invalid row, `!` for the reason to refuse the file, or `.` at the end.
Memory is limited, because the file is untrusted.
"""

import math
import os
import resource
import sys
from typing import Any

import orjson

from apps.gym.image_data import ImageRefused, find_kind, read_image

BATCH_BYTES = 2 * 1024**2


def main(descriptor: str, *limits: str) -> None:
    rows, unpacked, memory, row_bytes = map(int, limits)
    # Arrow's own pools reserve more than they use, and each thread needs a stack.
    os.environ.update({"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"})
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    own = _data_bytes()
    resource.setrlimit(resource.RLIMIT_DATA, (own + memory, own + memory))
    try:
        # thrift limits, because the footer is untrusted too.
        file = pq.ParquetFile(
            f"/dev/fd/{descriptor}",
            buffer_size=256 * 1024,
            pre_buffer=False,
            thrift_string_size_limit=16 * 1024**2,
            thrift_container_size_limit=1_000_000,
        )
        _check(file.metadata, rows, unpacked)
        _write_rows(file, row_bytes)
    except (MemoryError, pa.ArrowMemoryError):
        sys.exit(3)
    except (pa.ArrowException, OSError, ValueError) as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "malloc" in words or "allocat" in words.lower():
            sys.exit(3)
        # The parent process redacts and cuts this: loading the rules here would use memory.
        _say(b"!", {"code": "not_parquet", "message": "this is not a readable Parquet file", "words": words})


def _data_bytes() -> int:
    """Return the private writable memory of this process in bytes, as RLIMIT_DATA counts it."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[5]) * resource.getpagesize()


def _check(metadata: Any, rows: int, unpacked: int) -> None:
    size = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    if metadata.num_rows > rows:
        message = f"{metadata.num_rows:,} rows: the limit is {rows:,} (GYMWEB_MAX_UPLOAD_ROWS)"
        _refuse("too_many_rows", message, "GYMWEB_MAX_UPLOAD_ROWS")
    if size > unpacked:
        message = f"the file unpacks to {size:,} bytes: the limit is {unpacked:,} (GYMWEB_MAX_UNPACKED_BYTES)"
        _refuse("unpacks_too_large", message, "GYMWEB_MAX_UNPACKED_BYTES")


def _refuse(code: str, message: str, limit: str) -> None:
    _say(b"!", {"code": code, "message": message, "limit": limit})
    sys.exit(0)


def _write_rows(file: Any, row_bytes: int) -> None:
    groups = range(file.metadata.num_row_groups)
    size = sum(file.metadata.row_group(index).total_byte_size for index in groups)
    each = size // max(1, file.metadata.num_rows) + 1
    has_bytes = "binary" in str(file.schema_arrow)
    for batch in file.iter_batches(batch_size=max(1, min(1000, BATCH_BYTES // each)), use_threads=False):
        for row in batch.to_pylist():
            _write_row(row, row_bytes, has_bytes=has_bytes)
    sys.stdout.buffer.write(b".\n")
    sys.stdout.buffer.flush()


def _write_row(row: dict[str, Any], row_bytes: int, *, has_bytes: bool) -> None:
    try:
        if has_bytes:
            _write_images(row)
    except ImageRefused as error:
        _say(b"-", {"code": "bad_image", "message": str(error)})
        return
    pointer = _not_finite(row)
    if pointer is not None:
        _say(b"-", {"code": "not_finite", "message": f"{pointer} is not a finite number"})
        return
    try:
        line = orjson.dumps(row, default=_as_text, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError as error:
        _say(b"-", {"code": "not_json", "message": f"this row cannot be written as JSON: {error}"})
        return
    if len(line) > row_bytes:
        message = f"{len(line):,} bytes in one row: the limit is {row_bytes:,} (GYMWEB_MAX_LINE_BYTES)"
        _say(b"-", {"code": "too_long", "message": message})
        return
    sys.stdout.buffer.write(b"+%b\n" % line)


def _write_images(row: dict[str, Any]) -> None:
    """Replace image files by data URLs. Raises ImageRefused.

    Image columns hold `{"bytes": …, "path": …}`, and `bytes` is null if the file is elsewhere.
    """
    waiting: list[tuple[str, Any]] = [("", row)]
    while waiting:
        pointer, holder = waiting.pop()
        for key, value in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            is_file = isinstance(value, dict) and value.keys() == {"bytes", "path"}
            content = value["bytes"] if is_file else value
            if isinstance(content, bytes) and (is_file or find_kind(content)):
                try:
                    holder[key] = read_image(content).data_url
                except ImageRefused as error:
                    raise ImageRefused(f"{pointer}/{key} {error}") from None
            elif is_file:
                holder[key] = value["path"]
            elif isinstance(value, dict | list):
                waiting.append((f"{pointer}/{key}", value))


def _not_finite(row: dict[str, Any]) -> str | None:
    waiting: list[tuple[str, Any]] = [(f"/{name}", value) for name, value in row.items()]
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return pointer
        if isinstance(value, dict):
            waiting += [(f"{pointer}/{name}", one) for name, one in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{pointer}/{index}", one) for index, one in enumerate(value)]
    return None


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise TypeError("it contains bytes that are not text") from None
    return str(value)


def _say(mark: bytes, what: dict[str, str]) -> None:
    sys.stdout.buffer.write(b"%b%b\n" % (mark, orjson.dumps(what)))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
