"""`python -m apps.gym.tasks.files.parquet_process FD ROWS UNPACKED MEMORY ROW`: write a Parquet file as lines.

A line starts with `+` for a row, `-` for an invalid row, `!` for the reason to refuse the file, or `.` at the end.
Memory is limited, because the file is untrusted.
"""

import datetime
import math
import os
import re
import resource
import struct
import sys
from typing import Any

import orjson

from apps.gym.image_data import ImageRefused, find_kind, read_image

BATCH_BYTES = 2 * 1024**2
_EXACT = re.compile("float|date|time|duration|map")
"""Types whose Python values lose something: digits, years or nanoseconds, or the keys of a map. float64 is `double`."""


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
        # Arrow's own Python values are right for the other columns, and faster.
        columns = [_read_column(column) for column in batch.columns]
        for index in range(batch.num_rows):
            try:
                row = {
                    name: column[index] if isinstance(column, list) else _read(column[index])
                    for name, column in zip(batch.schema.names, columns, strict=True)
                }
            except TypeError as error:
                _say(b"-", {"code": "not_json", "message": f"this row cannot be written as JSON: {error}"})
                continue
            _write_row(row, row_bytes, has_bytes=has_bytes)
    sys.stdout.buffer.write(b".\n")
    sys.stdout.buffer.flush()


def _read_column(column: Any) -> Any:
    if str(column.type) == "float":
        return _read_floats(column)
    return column if _EXACT.search(str(column.type)) else column.to_pylist()


def _read(scalar: Any) -> Any:
    """Return the Python value of an Arrow scalar: maps as objects, short floats, and times with all their digits.

    Raises TypeError for a map that is no JSON object.
    """
    import pyarrow as pa

    while scalar.is_valid and isinstance(scalar, pa.DictionaryScalar | pa.ExtensionScalar):
        scalar = scalar.value
    kind = scalar.type
    if not scalar.is_valid or not _EXACT.search(str(kind)):
        return scalar.as_py()
    if pa.types.is_map(kind):
        pairs = [(_as_key(_read(pair["key"])), _read(pair["value"])) for pair in scalar.values]
        if len(members := dict(pairs)) < len(pairs):
            raise TypeError("a map has a key twice")
        return members
    if pa.types.is_struct(kind):
        return {name: _read(scalar[index]) for index, name in enumerate(kind.names)}
    if isinstance(scalar, pa.ListScalar):
        is_float = pa.types.is_float32(kind.value_type)
        return _read_floats(scalar.values) if is_float else list(map(_read, scalar.values))
    return _read_time(scalar) if pa.types.is_temporal(kind) else _shortest(scalar)


def _read_floats(array: Any) -> list[float | None]:
    """Return float32 numbers with the fewest digits, as Arrow writes them: 0.1 for 0.10000000149011612."""
    import pyarrow as pa

    return [None if text is None else float(text) for text in array.cast(pa.string()).to_pylist()]


def _shortest(scalar: Any) -> float | None:
    """Return a float with the fewest digits. Arrow writes float16 with all digits of a float64."""
    import pyarrow as pa

    if scalar.type.bit_width != 16:
        return _read_floats(pa.array([scalar.as_py()], scalar.type))[0]
    value: float = scalar.as_py()
    if math.isfinite(value) and not value.is_integer():
        shorter = (float(f"{value:.{digits}g}") for digits in range(3, 6))
        return next(short for short in shorter if struct.unpack("e", struct.pack("e", short))[0] == value)
    return value


def _read_time(scalar: Any) -> Any:
    """Return a date or time of Python, or a text for one below a microsecond or beyond its years.

    Beyond the years that Arrow writes, the text is the number and its unit, counted from 1970.
    """
    import pyarrow as pa

    rest = 0
    if str(scalar.type).startswith(("timestamp[ns", "time64[ns", "duration[ns")):
        zone = {"tz": scalar.type.tz} if pa.types.is_timestamp(scalar.type) else {}
        make = getattr(pa, str(scalar.type).partition("[")[0])
        whole, rest = divmod(scalar.value, 1000)
        scalar = pa.scalar(whole, make("us", **zone))
    try:
        time = scalar.as_py()
    except (ValueError, OverflowError, LookupError):
        if not pa.types.is_duration(scalar.type) and not getattr(scalar.type, "tz", None):
            text = str(scalar.cast(pa.string())).replace(" ", "T")
            if not text.startswith("<"):
                return text
        return f"{scalar.value} {getattr(scalar.type, 'unit', 'days')}"
    if not rest:
        return time
    if isinstance(time, datetime.timedelta):
        return f"{time}{'' if time.microseconds else '.000000'}{rest:03}"
    return re.sub(r"(\.\d{6})", rf"\g<1>{rest:03}", time.isoformat(timespec="microseconds"))


def _as_key(key: Any) -> Any:
    # orjson writes these as keys.
    return key if isinstance(key, str | int | float | datetime.date | datetime.time) else _as_text(key)


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
