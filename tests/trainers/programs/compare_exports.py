"""In the trainers' environment: load large exports with `datasets`, and count the rows that are not what was written.

`compare_exports.py OUT LINES FOLDER…` writes to OUT a JSON object: for each folder, by its name, and each way of
loading how many rows there were, how many differ from the lines of the file LINES, and the first of these.
"""

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datasets import load_dataset


def compare(lines: Path, rows: Iterable[dict[str, Any]]) -> list[Any]:
    number = differ = 0
    first = None
    with lines.open() as file:
        for number, (line, row) in enumerate(zip(file, rows, strict=True), start=1):  # noqa: B007 - it is the count
            written, loaded = (json.dumps(one, sort_keys=True) for one in (json.loads(line), row))
            if written != loaded:
                differ += 1
                first = first or [written, loaded]
    return [number, differ, first]


def main() -> None:
    out, lines, *folders = map(Path, sys.argv[1:])
    found = {}
    for folder in folders:
        with tempfile.TemporaryDirectory() as cache:
            loaded = compare(lines, load_dataset(str(folder), split="train", cache_dir=cache))
        found[folder.name] = {"loaded": loaded}
        if not list(folder.glob("*.parquet")):
            # What is inferred of JSON lines as they come is where streams fail; Parquet says its types at once.
            found[folder.name]["streamed"] = compare(lines, load_dataset(str(folder), split="train", streaming=True))
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
