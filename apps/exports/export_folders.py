"""The folder of an export: written to hidden files, published when complete.

train.jsonl, validation.jsonl   rows, a file for each split
README.md                       the dataset card
manifest.json                   filters, options, counts, checksums
…                               further files for the trainer
"""

import glob
import shutil
from pathlib import Path
from typing import Any

import msgspec
import orjson
from django.conf import settings

from apps.exports.dataset_cards import write_card
from apps.exports.export_rows import SourceRows
from apps.exports.held_out_splits import TRAIN, VALIDATION
from apps.exports.models import Encoding, Export
from apps.exports.parquet_files import ParquetFile
from apps.exports.row_files import JsonLinesFile, RowFile, sync_folder, write_text
from apps.gym.exporters.protocol import Options
from apps.gym.exporters.registry import FORMATS, find_format

MANIFEST = "manifest.json"
CARD = "README.md"
_LONGEST_FIRST = sorted(Encoding.values, key=len, reverse=True)


def default_path(export: Export) -> Path:
    return Path(settings.EXPORTS_DIR) / f"export-{export.pk}"


def named_encoding(path: Path) -> str | None:
    """Return the encoding implied by the file name, or None for a folder."""
    return next((one for one in _LONGEST_FIRST if path.name.endswith(f".{one}")), None)


def is_one_file(path: Path) -> bool:
    """Return True if the path names a single file, not a folder."""
    return named_encoding(path) is not None


def manifest_path(path: Path) -> Path:
    """Return the path of the manifest of an export at this path."""
    return path.with_name(f"{path.name}.{MANIFEST}") if is_one_file(path) else path / MANIFEST


def rows_path(export: Export, name: str) -> Path:
    """Return the path of a file of rows of a finished export."""
    path = Path(export.path)
    return path if path.is_file() else path / name


def names_in(export: Export) -> list[str]:
    """Return the names of the files of a finished export that users may download."""
    path = Path(export.path)
    if not path.is_dir():
        return [one["name"] for one in export.files] or ([path.name] if export.rows else [])
    return sorted(one.name for one in path.iterdir() if one.is_file() and not one.name.startswith("."))


def is_safe_to_replace(path: Path) -> bool:
    """Return True if nothing exists at the path, or only a folder of export files."""
    if not path.is_dir():
        return not path.exists()
    try:
        rows = {one["name"] for one in orjson.loads((path / MANIFEST).read_bytes())["files"]}
    except (OSError, ValueError, LookupError, TypeError):
        rows = set()
    beside = {name for format in FORMATS.values() for name in format.companions({}, Options())}
    return {one.name for one in path.iterdir()} <= {*rows, *beside, MANIFEST, CARD}


def sweep_parts(path: Path, export_id: int) -> None:
    """Remove hidden files that crashed writers of this export left next to the path."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{export_id}-*.part*"):
        shutil.rmtree(left, ignore_errors=True)


class ExportFolder:
    """The output of an export. Rows are written to hidden files next to `path`.

    `publish` renames all files, `discard` removes unpublished ones. Only one writer is active at a time, so files of
    earlier writers are removed.
    """

    def __init__(self, path: Path, export: Export, *, attempt: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._export = export
        self._format = find_format(export.format)
        self._options = msgspec.convert(export.options, Options)
        sweep_parts(path, export.pk)
        self._part = path.with_name(f".{path.name}.{export.pk}-{attempt}.part")
        self._part.mkdir()
        self._files: dict[str, RowFile] = {}
        try:
            for split in [TRAIN, VALIDATION] if export.validation_share else [TRAIN]:
                self._files[split] = self._open(split)
        except BaseException:
            self.discard()
            raise

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self._files.values())

    @property
    def bytes_written(self) -> int:
        return sum(file.stat().st_size for file in self._part.iterdir()) if self._part.is_dir() else 0

    def write(self, made: SourceRows) -> None:
        self._files[made.split].write(made.rows, made.encoded)

    def finish(self) -> list[RowFile]:
        """Flush all hidden files, and return the row files in the order of their splits.

        Files without rows are removed, because no loader accepts them.
        """
        for file in self._files.values():
            file.finish()
        for split in [split for split, file in self._files.items() if not file.rows]:
            self._files.pop(split).path.unlink()
        return list(self._files.values())

    def publish(self, manifest: dict[str, Any]) -> None:
        """Rename the row files and their manifest to their final names."""
        text = orjson.dumps(manifest, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
        if is_one_file(self.path):
            write_text(self._part / MANIFEST, text)
            (self._part / MANIFEST).replace(manifest_path(self.path))
            if self._files:
                self._files[TRAIN].path.replace(self.path)
            else:
                # The file of an earlier export is not part of this one.
                self.path.unlink(missing_ok=True)
        else:
            self._publish_folder(manifest, text)
        sync_folder(self.path.parent)

    def discard(self) -> None:
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._part, ignore_errors=True)

    def _publish_folder(self, manifest: dict[str, Any], text: str) -> None:
        names = {split: file.path.name for split, file in self._files.items()}
        for name, content in (self._format.companions(names, self._options) if names else {}).items():
            write_text(self._part / name, content)
        write_text(self._part / CARD, write_card(self._format, self._options, manifest))
        write_text(self._part / MANIFEST, text)
        sync_folder(self._part)
        old = self._part.with_name(f"{self._part.name}.old")
        if self.path.exists():
            self.path.replace(old)
        self._part.replace(self.path)
        shutil.rmtree(old, ignore_errors=True)

    def _open(self, split: str) -> RowFile:
        path = self._part / f"{split}.{self._export.encoding}"
        if self._export.encoding == Encoding.PARQUET:
            return ParquetFile(path, split=split, features=self._format.features(self._options))
        return JsonLinesFile(path, split=split, gzipped=self._export.encoding == Encoding.JSONL_GZ)
