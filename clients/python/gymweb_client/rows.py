"""Types of API responses with the fields that scripts use; rows may have more fields."""

from typing import Any, TypedDict

Row = dict[str, Any]
"""A row whose fields are described in the API documentation."""


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
