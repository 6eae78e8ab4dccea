"""ZIP archives with one file of rows, and image files that its rows name by relative paths."""

import json
import posixpath
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from json import JSONDecodeError
from typing import IO

from apps.gym.image_data import MAX_IMAGE_BYTES, ImageRefused, image_places, is_path, read_image
from apps.gym.redaction.shortening import cut
from apps.gym.tasks.files.file_limits import KEPT_OF_LONG_ROW, BadRow, FileRefused, Limits, too_long
from apps.gym.tasks.files.streams import Counted, Unpacked, seekable
from apps.gym.tasks.files.tabular_files import TableReader

ZIP = b"PK\x03\x04"
MAX_DIRECTORY_BYTES = 16 * 1024**2
"""Bytes of the archive's list of files, which is read into memory: about 150,000 files."""
_ROW_FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".tab", ".parquet")
_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError)
"""Damaged, encrypted and unusually compressed archives."""

Rows = Iterable[tuple[int, bytes | BadRow]]


class ZipReader:
    """The rows of the archive's only file of rows, with image files as data URLs."""

    def __init__(self, content: Counted, limits: Limits, open_rows: Callable[[Counted, str], tuple[str, Rows]]) -> None:
        self._content, self._limits, self._open_rows = content, limits, open_rows
        self._rows: Rows = ()
        self._unpacked = 0

    @property
    def columns(self) -> list[str]:
        """The names in the header of a table, available after the first row was read."""
        return self._rows.columns if isinstance(self._rows, TableReader) else []

    def __iter__(self) -> Iterator[tuple[int, bytes | BadRow]]:
        with seekable(self._content, self._limits, packed=False) as file:
            try:
                _check_directory(file)
                with zipfile.ZipFile(file) as archive:
                    yield from self._read(archive, file)
            except _ERRORS as error:
                raise FileRefused("not_zip", f"the ZIP archive cannot be read: {cut(str(error), 200)}") from None

    def _read(self, archive: zipfile.ZipFile, file: IO[bytes]) -> Iterator[tuple[int, bytes | BadRow]]:
        name = _find_rows(archive)
        folder = posixpath.dirname(name)
        with archive.open(name) as member:
            packed = Counted(self._content)
            packed.count = archive.getinfo(name).compress_size

            def report() -> None:
                # ZipFile reads the file past `content`, which counts the progress.
                self._content.count = max(self._content.count, file.tell())
                if self._limits.on_read:
                    self._limits.on_read()

            _, self._rows = self._open_rows(Counted(Unpacked(packed, member, self._limits), report), name.lower())
            for number, row in self._rows:
                yield number, row if isinstance(row, BadRow) else self._with_images(archive, folder, row)

    def _with_images(self, archive: zipfile.ZipFile, folder: str, line: bytes) -> bytes | BadRow:
        try:
            row = json.loads(line)
        except (JSONDecodeError, UnicodeDecodeError, RecursionError):
            return line  # reported when the row is read
        places = [place for place in image_places(row) if is_path(place.address)] if isinstance(row, dict) else []
        if not places:
            return line
        for place in places:
            try:
                place.holder[place.key] = self._read_image(archive, folder, place.address)
            except ImageRefused as error:
                return BadRow("bad_image", f"{place.pointer} {error}", line[:KEPT_OF_LONG_ROW])
        changed = json.dumps(row, ensure_ascii=False).encode()
        if len(changed) > self._limits.line_bytes:
            return BadRow("too_long", too_long(len(changed), self._limits.line_bytes, "row"), line[:KEPT_OF_LONG_ROW])
        return changed

    def _read_image(self, archive: zipfile.ZipFile, folder: str, path: str) -> str:
        """Return an image file as a data URL. Paths count from the file of rows, or from the top of the archive."""
        names = [posixpath.normpath(posixpath.join(start, path)) for start in (folder, "")]
        found = next((name for name in names if name in archive.NameToInfo), None)
        if found is None:
            raise ImageRefused(f"names the file {cut(path, 100)}, which is not in the archive")
        with archive.open(found) as member:
            content = member.read(MAX_IMAGE_BYTES + 1)
        self._unpacked += len(content)
        if self._unpacked > self._limits.unpacked_bytes:
            message = (
                f"the images unpack to more than {self._limits.unpacked_bytes:,} bytes (GYMWEB_MAX_UNPACKED_BYTES)"
            )
            raise FileRefused("unpacks_too_large", message, limit="GYMWEB_MAX_UNPACKED_BYTES")
        return read_image(content).data_url


def _check_directory(file: IO[bytes]) -> None:
    """Raise FileRefused if the list of files is too large. ZipFile reads all of it at once."""
    # The function with which ZipFile finds the list: another one could be led to another list.
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    size = end[5] if end else 0
    if size > MAX_DIRECTORY_BYTES:
        message = f"the list of files in the ZIP archive has {size:,} bytes: the limit is {MAX_DIRECTORY_BYTES:,}"
        raise FileRefused("not_zip", f"{message}. Upload several archives, or Parquet")


def _find_rows(archive: zipfile.ZipFile) -> str:
    """Return the name of the only file of rows. Raises FileRefused."""
    names = [
        name
        for name in archive.namelist()
        # macOS adds a file for each file.
        if name.lower().endswith(_ROW_FILES) and not name.startswith("__MACOSX/")
    ]
    if len(names) != 1:
        told = f"several files of rows: {cut(', '.join(names), 200)}" if names else "no file of rows"
        ask = f"exactly one of {', '.join(_ROW_FILES)}"
        raise FileRefused("not_zip", f"the ZIP archive has {told}. Put {ask} into it, beside the images")
    return names[0]
