"""Columns of the table of rollouts in order, and which of them can be sorted."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.accounts.models import User


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    label: str
    sort: str = ""
    classes: str = ""


COLUMNS: tuple[Column, ...] = (
    Column("reward", "Reward", "reward"),
    Column("task", "Task", classes="first"),
    Column("answer", "Answer"),
    Column("expected", "Expected"),
    Column("why", "Explanation"),
    Column("components", "Components"),
    Column("review", "Review"),
    Column("status", "Status"),
    Column("collection", "Collection"),
    Column("model", "Model"),
    Column("version", "Version"),
    Column("agent", "Agent"),
    Column("steps", "Turns", "steps", "num lesser"),
    Column("calls", "Tool calls", "calls", "num"),
    Column("tokens", "Tokens in / out", "tokens", "num lesser"),
    Column("seconds", "Duration", "seconds", "num lesser"),
    Column("cost", "Cost", "cost", "num lesser"),
    Column("flags", "Flags"),
    Column("tags", "Tags"),
    Column("attempt", "Attempt", classes="num lesser"),
    Column("ended", "Finished", classes="lesser"),
)
SCAN = Column("scan", "Scan")
"""Shown while the filter names a scan; users do not choose it."""
NAMES = tuple(column.name for column in COLUMNS)
USUAL = ("reward", "task", "answer", "expected", "why", "status", "collection", "seconds")
DENSITIES = ("comfortable", "compact")
TABLE = "rollouts"
"""Name under which users' settings of this table are stored."""


def known_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the columns in order."""
    wanted = set(names)
    return tuple(name for name in NAMES if name in wanted)


def chosen_columns(user: User) -> tuple[str, ...]:
    return known_columns(user.tables.get(TABLE, {}).get("columns", ())) or USUAL


def chosen_density(user: User) -> str:
    density = user.tables.get(TABLE, {}).get("density", "")
    return density if density in DENSITIES else DENSITIES[0]
