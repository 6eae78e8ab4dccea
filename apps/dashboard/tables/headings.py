"""Headings of tables, which sort by their column."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a column, which has `name`, `label` and `classes`.

    `query` is the query string that sorts by the column; empty if the column cannot be sorted. `order` is the value of
    `aria-sort`.
    """

    column: Any
    query: str = ""
    order: str = "none"


def order_of(name: str, ordering: str) -> str:
    """Return the value of `aria-sort` for the column `name` in a list with this ordering, for example `-reward`."""
    return {name: "ascending", f"-{name}": "descending"}.get(ordering, "none")
