"""Copy unchanged rows into the next version, and read all rows of a version as uploaded."""

import hashlib
from collections.abc import Callable, Iterator
from itertools import islice

from django.db import connections, transaction
from django.db.models import Max, Sum
from django.db.models.functions import Length

from apps.accounts.keyset_reading import read_by_key
from apps.gym.json_lines import escape_line_ends
from apps.gym.tasks.dataset_metrics import DatasetMetrics
from apps.gym.tasks.task_rows import load_row
from apps.tasks.models import DatasetVersion, Task
from apps.tasks.stored_images import with_images

CHUNK_ROWS = 200
COPIED_ROWS = 2000
COPIED_BYTES = 8 * 1024**2

_COLUMNS = ["external_id", "prompt_excerpt", "row_json", "row_hash", "key", "split", "tags_text", "is_retired"]


def copy_rest(*, base: DatasetVersion, version: DatasetVersion, after_chunk: Callable[[], None]) -> None:
    """Copy tasks of the base to positions that are still empty in the version, in short transactions."""
    last = base.tasks.aggregate(last=Max("index"))["last"]
    step = _step(base)
    connection = connections[Task.objects.db]
    names = ", ".join(connection.ops.quote_name(name) for name in _COLUMNS)
    table, place = connection.ops.quote_name(Task._meta.db_table), connection.ops.quote_name("index")
    # Only names are formatted into the SQL; values are parameters.
    statement = f"""
        INSERT INTO {table} (dataset_id, version_id, {place}, {names})
        SELECT dataset_id, %s, {place}, {names} FROM {table} old
        WHERE old.version_id = %s AND old.{place} >= %s AND old.{place} < %s
        AND NOT EXISTS (SELECT 1 FROM {table} new WHERE new.version_id = %s AND new.{place} = old.{place})
    """  # noqa: S608
    for start in range(0, (last if last is not None else -1) + 1, step):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, [version.pk, base.pk, start, start + step, version.pk])
        after_chunk()


def _step(base: DatasetVersion) -> int:
    """Return the number of rows in about 8 MB."""
    first = base.tasks.filter(index__lt=COPIED_ROWS)
    size = first.aggregate(characters=Sum(Length("row_json")))["characters"] or 0
    return max(1, min(COPIED_ROWS, COPIED_ROWS * COPIED_BYTES // max(1, size)))


def measure_rows(*, version: DatasetVersion, after_chunk: Callable[[], None]) -> tuple[str, DatasetMetrics]:
    """Return the content hash and the metrics of all rows of a version."""
    digest, metrics = hashlib.sha256(), DatasetMetrics()
    rows = version.tasks.values_list("index", "row_json", "split", "tags_text")
    for place, (_, row_json, split, tags) in enumerate(read_by_key(rows, by="index", size=CHUNK_ROWS), start=1):
        text = with_images(row_json).encode()
        digest.update(text + b"\n")
        metrics.add(load_row(row_json), size=len(text), split=split, tags=tuple(filter(None, tags.split("\n"))))
        if place % CHUNK_ROWS == 0:
            after_chunk()
    after_chunk()
    return digest.hexdigest(), metrics


def read_rows(*, version: DatasetVersion) -> Iterator[bytes]:
    """Yield JSONL in chunks of lines, as uploaded except for escaped line ends.

    One query per chunk: a slow reader must not keep a cursor open.
    """
    rows = read_by_key(version.tasks.values_list("index", "row_json"), by="index", size=CHUNK_ROWS)
    is_first = True
    while chunk := list(islice(rows, CHUNK_ROWS)):
        lines = escape_line_ends(b"\n".join(with_images(text).encode() for _, text in chunk))
        yield lines if is_first else b"\n" + lines
        is_first = False
    if not is_first and version.final_newline:
        yield b"\n"
