"""Read the first row of a finished export."""

import gzip

from apps.exports.export_folders import rows_path
from apps.exports.models import Export

LONGEST = 256 * 1024
"""Maximum bytes read. A longer row is cut."""


def read_first_row(export: Export) -> str:
    """Return the first line of the first file with rows.

    Empty for unfinished exports, for Parquet, and if the file was removed or is damaged.
    """
    if export.state != Export.State.READY or not export.files:
        return ""
    path = rows_path(export, export.files[0]["name"])
    if path.suffix not in {".jsonl", ".gz"}:
        return ""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            line: bytes = file.readline(LONGEST)
    except (OSError, EOFError):
        return ""
    return line.decode(errors="replace").strip()
