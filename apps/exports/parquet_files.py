"""Parquet files with explicit types; JSON columns have Arrow's JSON type."""

import math
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from apps.exports.row_files import RowFile
from apps.gym.exporters.protocol import Feature
from apps.gym.image_data import read_data_url

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 2_000
GROUP_BYTES = 16 * 1024**2
"""Row groups are held in memory until written. A single group of a million rows would take 14 GB."""


class ParquetFile(RowFile):
    """A Parquet file with the columns of the format's features. Missing values become the empty value of their type.

    A missing integer is null, because 0 is a value, and a missing float is NaN.
    """

    def __init__(self, path: Path, *, split: str, features: dict[str, Feature]) -> None:
        # Imported lazily: it takes 50 MB and a third of a second.
        import pyarrow.parquet as pq

        super().__init__(path, split=split)
        self._features = features
        self._schema = _schema(features)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._columns: dict[str, list[Any]] = {name: [] for name in features}
        self._held = self._held_bytes = 0

    def write(self, rows: list[dict[str, Any]], encoded: list[bytes]) -> None:
        sizes = [len(row) for row in encoded]
        for row, size in zip(rows, sizes, strict=True):
            for name, feature in self._features.items():
                self._columns[name].append(_cell(row.get(name), feature))
            self._held += 1
            self._held_bytes += size
            if self._held >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
                self._flush()
        self.rows += len(rows)
        self.longest_row = max(self.longest_row, *sizes)

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._held:
            return
        arrays = [_array(self._columns[name], feature) for name, feature in self._features.items()]
        self._writer.write_table(pa.table(arrays, schema=self._schema))
        self._columns = {name: [] for name in self._features}
        self._held = self._held_bytes = 0


def _cell(value: Any, feature: Feature) -> Any:
    if value is None:
        return {"json": "null", "string": "", "bool": False, "int64": None, "float64": math.nan}.get(feature, [])
    if feature == "json":
        return orjson.dumps(value).decode()
    if feature == "json[]":
        return [orjson.dumps(one).decode() for one in value]
    if feature == "image[]":
        return [{"bytes": read_data_url(one).content, "path": None} for one in value]
    return value


def _schema(features: dict[str, Feature]) -> "pa.Schema":
    import pyarrow as pa

    kinds: dict[Feature, pa.DataType] = {
        "json": pa.json_(pa.string()),
        "json[]": pa.list_(pa.json_(pa.string())),
        "string": pa.string(),
        "bool": pa.bool_(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "int32[]": pa.list_(pa.int32()),
        "float32[]": pa.list_(pa.float32()),
        "image[]": pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        "turn[]": pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())])),
    }
    return pa.schema([(name, kinds[feature]) for name, feature in features.items()])


def _array(values: list[Any], feature: Feature) -> "pa.Array":
    import pyarrow as pa

    json = pa.json_(pa.string())
    if feature == "json":
        return pa.ExtensionArray.from_storage(json, pa.array(values, pa.string()))
    if feature == "json[]":
        offsets = [0]
        for value in values:
            offsets.append(offsets[-1] + len(value))
        flat = pa.array([one for value in values for one in value], pa.string())
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.ExtensionArray.from_storage(json, flat))
    return pa.array(values, _schema({"column": feature}).field(0).type)
