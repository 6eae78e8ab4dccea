"""In the trainers' environment: load folders of exports with `datasets`, in every way, and write what came of it.

`load_exports.py OUT FOLDER…` writes to OUT a JSON object: for each folder, by its name, the rows of each split as
`load_dataset` and as its stream give them, each row as one JSON text.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset


def plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def load(folder: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        found = load_dataset(str(folder), cache_dir=cache)
        assert all(isinstance(rows, Dataset) for rows in found.values())
        stream = load_dataset(str(folder), streaming=True)
        return {
            "features": {name: str(kind) for name, kind in found["train"].features.items()},
            "loaded": {split: [json.dumps(row, default=plain) for row in rows] for split, rows in found.items()},
            "streamed": {split: [json.dumps(row, default=plain) for row in rows] for split, rows in stream.items()},
        }


if __name__ == "__main__":
    out, *folders = map(Path, sys.argv[1:])
    out.write_text(json.dumps({folder.name: load(folder) for folder in folders}))
