"""Count exported rows with suspected credentials, and mask these if the order says so."""

from collections import Counter
from typing import Any

import msgspec

from apps.gym.redaction.redactor import list_kinds
from apps.gym.trainability import Dropped
from apps.policies.installation_redactor import fresh_redactor


class ExportedCredentials:
    """Check the rows of one export. Rows are exact unless `mask` is True."""

    def __init__(self, *, mask: bool) -> None:
        self.redactor = fresh_redactor()
        self._mask = mask
        self.rows = 0
        self._kinds: Counter[str] = Counter()

    def check(
        self, rows: list[dict[str, Any]], encoded: list[bytes], *, has_tokens: bool
    ) -> tuple[list[dict[str, Any]], list[bytes]]:
        """Return the rows and their JSON.

        Raise Dropped if rows with tokens must be masked: token IDs cannot be, and would reveal the text.
        """
        checked = [self.redactor.redact_json(line.decode()) for line in encoded]
        if not any(found for _, found in checked):
            return rows, encoded
        if self._mask and has_tokens:
            raise Dropped("credential_in_tokens")
        for _, found in checked:
            self.rows += bool(found)
            self._kinds.update(found)
        if not self._mask:
            return rows, encoded
        return [msgspec.json.decode(text) for text, _ in checked], [text.encode() for text, _ in checked]

    def figures(self) -> dict[str, Any]:
        """Return for the manifest: rows with suspected credentials, number by kind, and whether they are masked."""
        return {"rows": self.rows, "kinds": dict(sorted(self._kinds.items())), "masked": self._mask}


def warn_of_credentials(figures: dict[str, Any]) -> str:
    """Return a warning for users from these figures, or an empty text."""
    if not figures.get("rows"):
        return ""
    rows = "1 row has" if figures["rows"] == 1 else f"{figures['rows']:,} rows have"
    kinds = list_kinds(figures["kinds"])
    done = (
        "They are masked."
        if figures["masked"]
        else "They are exported unchanged. To mask them, export with “Mask credentials”."
    )
    return f"{rows} suspected credentials ({kinds}). {done}"
