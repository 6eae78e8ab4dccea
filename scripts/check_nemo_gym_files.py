#!/usr/bin/env python
"""Load every JSONL file below a folder, such as a checkout of NeMo Gym, and compare the stored rows with the file.

    .venv/bin/python -m scripts.check_nemo_gym_files FOLDER

A file may be refused only if it is empty or has no task row. `rows/` must return the bytes of every loaded file. Prints
the other files, and exits with 1 if there are any.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from scripts.measuring import use_database


class Outcome(NamedTuple):
    """What happened to one file: `loaded`, `no task rows`, `refused` or `changed`, with the reason."""

    path: Path
    outcome: str
    reason: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.outcome in {"refused", "changed"}


def check_files(folder: Path) -> Iterator[Outcome]:
    """Upload each file to a dataset of its own. Needs a database."""
    from apps.environments.models import Adapter, Environment
    from apps.tasks.dataset_changes import create_dataset
    from apps.tasks.unchanged_rows import read_rows
    from apps.tasks.upload_jobs import upload_file

    environment, _ = Environment.objects.get_or_create(
        slug="nemo-gym-files",
        defaults={"name": "NeMo Gym files", "adapter": Adapter.HTTP, "base_url": "http://127.0.0.1:1"},
    )
    for number, path in enumerate(sorted(folder.rglob("*.jsonl"))):
        content = path.read_bytes()
        dataset = create_dataset(slug=f"file-{number}", name=f"File {number}", environment=environment)
        with path.open("rb") as stream:
            upload = upload_file(dataset=dataset, stream=stream, filename=path.name)
        if upload.version is None:
            yield Outcome(path, "refused" if has_task_rows(content) else "no task rows", upload.message)
        elif upload.mapping is None and b"".join(read_rows(version=upload.version)) != content:
            yield Outcome(path, "changed", "The stored rows differ from the file.")
        else:
            yield Outcome(path, "loaded", "" if upload.mapping is None else "mapped")


def has_task_rows(content: bytes) -> bool:
    """Return True if a line is an object with `responses_create_params`."""
    for line in content.splitlines():
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(row, dict) and isinstance(row.get("responses_create_params"), dict):
            return True
    return False


def main(folder: Path) -> int:
    with tempfile.TemporaryDirectory() as place:
        use_database(Path(place))
        outcomes = list(check_files(folder))
    for one in outcomes:
        if one.outcome != "loaded":
            print(f"{one.outcome}: {one.path.relative_to(folder)}: {one.reason}")
    print(
        ", ".join(f"{number} {name}" for name, number in Counter(one.outcome for one in outcomes).items()) or "no files"
    )
    return 1 if any(one.is_wrong for one in outcomes) or not outcomes else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
