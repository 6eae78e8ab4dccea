"""Report suspected credentials in uploaded rows. Rows are stored as uploaded unless the uploader chose otherwise."""

from collections import Counter
from dataclasses import replace
from typing import Any

from apps.gym.redaction.redactor import Redactor, list_kinds
from apps.gym.redaction.shortening import pointer_step
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.task_rows import ID_CHARS, MARK_CHARS, ParsedTask, load_row, parse_line, prompt_excerpt
from apps.tasks.models import Upload

_DONE = {
    Upload.OnCredential.KEEP: "They are stored as uploaded. Pages mask them, and exports contain them unless masked.",
    Upload.OnCredential.REDACT: "They were redacted, which may change prompts and verifier inputs.",
    Upload.OnCredential.REJECT: "",
}


class SuspectedCredentials:
    """Count the rows of one upload with suspected credentials, and treat them as the uploader chose."""

    def __init__(self, *, choice: str, redactor: Redactor) -> None:
        self._choice = Upload.OnCredential(choice)
        self._redactor = redactor
        self._kinds: Counter[str] = Counter()
        self._first = ""
        self.rows = 0

    def check(self, task: ParsedTask, *, line: int) -> ParsedTask:
        """Return the task to store. Raise RowRefused if such rows are rejected, naming the place of the first one.

        The row is unchanged unless redaction was chosen. The columns that pages show are masked.
        """
        text, found = self._redactor.redact_json(task.row_json)
        if not found:
            return task
        masked = load_row(text)
        place = find_difference(task.row, masked)
        if self._choice == Upload.OnCredential.REJECT:
            told = "Remove it, or choose to store or redact suspected credentials"
            raise RowRefused("credential", f"looks like a credential ({list_kinds(found)}). {told}", pointer=place)
        self.rows += 1
        self._kinds.update(found)
        self._first = self._first or f"line {line:,} {place}".rstrip()
        if self._choice == Upload.OnCredential.REDACT:
            return parse_line(text.encode())
        return replace(
            task,
            external_id=self._mask(task.external_id, ID_CHARS),
            prompt_excerpt=prompt_excerpt(masked),
            split=self._mask(task.split, MARK_CHARS),
            tags=tuple(self._mask(tag, MARK_CHARS) for tag in task.tags),
        )

    def _mask(self, text: str, limit: int) -> str:
        return self._redactor.redact_text(text)[0][:limit]

    @property
    def told(self) -> str:
        """Return the warning, or an empty text."""
        if not self.rows:
            return ""
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        kinds = list_kinds(self._kinds)
        return f"Suspected credentials in {rows}, first in {self._first} ({kinds}). {_DONE[self._choice]}"


def find_difference(row: Any, masked: Any) -> str:
    """Return the JSON pointer of the first value or name that differs; empty if there is none, or it is the value."""
    if isinstance(row, dict) and isinstance(masked, dict):
        # A masked name moves its value to the end.
        pairs = [(name, value, masked.get(name)) for name, value in row.items()]
    elif isinstance(row, list) and isinstance(masked, list):
        pairs = [(str(index), *both) for index, both in enumerate(zip(row, masked, strict=False))]
    else:
        return ""
    for name, one, other in pairs:
        if one != other:
            return f"/{pointer_step(name, 80)}{find_difference(one, other)}"
    return ""
