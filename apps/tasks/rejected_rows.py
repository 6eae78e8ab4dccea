"""Rejected rows of an upload: the first hundred in the database, all of them in a file."""

from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import orjson
from django.conf import settings

from apps.accounts.disk_space import check_folder
from apps.gym.json_lines import escape_line_ends
from apps.gym.storable import clean_line
from apps.gym.tasks.files.file_limits import FileRefused
from apps.policies.installation_redactor import fresh_redactor
from apps.tasks.models import Upload

ERRORS_ON_ROW = 100
KEPT_TEXT_BYTES = 2048
MAX_REJECTS_BYTES = 256 * 1024**2
LOOK_AT_DISK_ROWS = 1_000


def rejects_file(upload: Upload) -> Path:
    return Path(settings.UPLOADS_DIR) / f"{upload.pk}.rejected.jsonl"


def rejected_path(upload: Upload) -> Path | None:
    """Return the path of the JSONL file of all rejected lines, or None."""
    path = rejects_file(upload)
    return path if path.exists() else None


class Rejects:
    """Collect rejected rows of an upload. The file is created with the first one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._redactor = fresh_redactor()
        self._file: BinaryIO | None = None
        self._bytes = 0
        self.count = 0
        self.first: list[dict[str, object]] = []

    def __enter__(self) -> "Rejects":
        # The file of an earlier attempt.
        self._path.unlink(missing_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._file:
            self._file.close()

    def add(self, *, line: int, code: str, message: str, text: bytes, pointer: str = "") -> None:
        """Add a rejected row. Raise FileRefused if there are too many, and DiskFull."""
        self.count += 1
        entry = self._entry(line, pointer, code, message)
        if len(self.first) < ERRORS_ON_ROW:
            self.first.append(entry)
        if self._file is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._file = self._path.open("wb")
        cut = text[:KEPT_TEXT_BYTES].decode(errors="replace")
        rejected = orjson.dumps({**entry, "text": cut}, option=orjson.OPT_APPEND_NEWLINE)
        self._bytes += self._file.write(escape_line_ends(rejected))
        if self.count % LOOK_AT_DISK_ROWS == 0:
            check_folder(self._path.parent)
        if self._bytes > MAX_REJECTS_BYTES:
            message = f"{self.count:,} rows were rejected, more than can be listed. The remaining rows were not checked"
            raise FileRefused("too_many_bad_rows", message, line=line, limit="rejected rows")

    def prepend(self, refused: FileRefused) -> str:
        """Insert the reason why the file could not be read further, redacted, before the row errors. Return it."""
        entry = self._entry(refused.line, "", refused.code, refused.message)
        self.first = [entry, *self.first][:ERRORS_ON_ROW]
        message = str(entry["message"])
        return f"{message[:1].upper()}{message[1:].rstrip('.')}. Nothing was stored."

    def _entry(self, line: int, pointer: str, code: str, message: str) -> dict[str, object]:
        # Both may quote the file, with credentials and characters that cannot be stored.
        message, pointer = (self._redactor.redact_text(one)[0] for one in (message, pointer))
        return {"line": line, "pointer": clean_line(pointer, 500), "code": code, "message": clean_line(message, 2000)}
