"""Types of API responses, with commonly used fields. Rows may have more."""

from typing import Any, TypedDict

Row = dict[str, Any]
"""A row as described in the API documentation."""


class Collection(TypedDict):
    id: int
    name: str
    state: str
    total: int
    completed: int
    failed: int
    cancelled: int
    mean_reward: float | None


class Export(TypedDict):
    id: int
    format: str
    state: str
    rows: int
    bytes: int
    sha256: str
    files: list[Row]
    beside: list[str]
    message: str


class PairSet(TypedDict):
    id: int
    collection: int
    pair_count: int
    counts: dict[str, int]
