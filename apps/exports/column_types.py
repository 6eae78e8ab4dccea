"""Types of columns that depend on the values of the written rows.

Without declared types, `datasets` guesses them and fills objects with nulls. If a column has only dates, it reads
them as timestamps: even declared as a string, 2024-01-01 becomes 2024-01-01 00:00:00. A JSON column keeps them.
"""

import re
from collections import defaultdict
from typing import Any

from apps.gym.exporters.protocol import Feature

_LARGEST = 2**63 - 1
_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d)?)?Z?)?")
_KINDS: dict[type, Feature] = {bool: "bool", float: "float64"}


class ColumnTypes:
    """Collects the types of the values of each column while rows are written."""

    def __init__(self) -> None:
        self._found: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            for name, value in row.items():
                # A null fits every type. Beside a text, a date is a text.
                if value is not None and not (type(value) is str and "string" in self._found[name]):
                    self._found[name].add(_kind_of(value))

    def features(self) -> dict[str, str]:
        """Return the type of each column: `json` unless all values have the same simple type."""
        return {name: _feature_of(kinds) for name, kinds in self._found.items()}

    def mixed(self) -> list[str]:
        """Return the columns of texts and other values. `datasets` loads a text "007" of such a column as 7."""
        return [name for name, kinds in self._found.items() if "string" in kinds and kinds - {"string", "date"}]

    def dates(self) -> list[str]:
        """Return the columns whose values are all dates."""
        return [name for name, kinds in self._found.items() if kinds == {"date"}]


def _feature_of(kinds: set[str]) -> str:
    if kinds == {"date", "string"}:
        return "string"
    return next(iter(kinds)) if len(kinds) == 1 and "date" not in kinds else "json"


def _kind_of(value: object) -> str:
    if isinstance(value, str):
        return "date" if _DATE.fullmatch(value) else "string"
    if type(value) is int:
        return "int64" if -_LARGEST <= value <= _LARGEST else "json"
    return _KINDS.get(type(value), "json")
