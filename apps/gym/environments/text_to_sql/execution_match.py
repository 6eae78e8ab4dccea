"""Execution match: two queries give the same rows, here and on databases that the policy model never sees."""

import re
from collections import Counter
from typing import Any

from apps.gym.code_blocks import find_block
from apps.gym.environments.text_to_sql.databases.registry import build_database
from apps.gym.environments.text_to_sql.query_guard import QueryRefused, Table, Value, run_query
from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, item_type, text_of
from apps.gym.verifiers.answer_extraction import excerpt

HIDDEN = (10_001, 10_002, 10_003, 10_004, 10_005, 10_006)
"""Seeds of databases that no tool shows: a reply that writes down the rows it has seen, or that is right by chance, is
found out on these."""
_MOST_ROWS = 2_000
_SQL = frozenset({"sql", "sqlite", "sqlite3"})


def match_queries(row: TaskRow, response: dict[str, Any], name: str, seed: int) -> Reward:
    """1.0 when the rows are the same on all of them. Raises VerifierError where the row's own query cannot be run."""
    query = find_query(response)
    if query is None:
        return _reward(0.0, 0.0, 0.0, "there is no query in the reply", query)
    matches = []
    for number in (seed, *HIDDEN):
        database = build_database(name, number)
        try:
            wanted = run_query(database, str(row.get("sql")), most_rows=_MOST_ROWS)
        except QueryRefused as problem:
            raise VerifierError(f"the task row's own query cannot be run: {problem}").lasting() from None
        try:
            given = run_query(database, query, most_rows=_MOST_ROWS)
        except QueryRefused as problem:
            return _reward(0.0, 0.0, 0.0, f"the query cannot be run: {problem}", query)
        matches.append(same_rows(wanted, given, ordered=row.get("ordered") is True))
    shown, *hidden = matches
    some = "the" if shown else "not the"
    told = f"{some} rows of the database shown, and those of {sum(hidden)} of {len(hidden)} others"
    return _reward(1.0, float(shown), sum(hidden) / len(hidden), told, query)


def find_query(response: dict[str, Any]) -> str | None:
    """What the last message's last block of SQL holds, else its last that names no language; the whole message where it
    is nothing but a query."""
    for item in reversed(response.get("output") or []):
        if item_type(item) == "message" and item.get("role") == "assistant":
            text = text_of(item).strip()
            block = find_block([text], _SQL)
            if block is not None:
                return block.strip()
            return text if re.match(r"(?:select|with)\b", text, re.IGNORECASE) else None
    return None


def same_rows(wanted: Table, given: Table, *, ordered: bool) -> bool:
    """Columns count by their place, not their name; rows by their order only where the question asks for one."""
    if wanted.cut != given.cut:
        return False
    one, other = list(map(_key, wanted.rows)), list(map(_key, given.rows))
    return one == other if ordered else Counter(one) == Counter(other)


def _key(row: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(round(value, 6) if isinstance(value, float) else value for value in row)


def _reward(runs: float, shown: float, hidden: float, told: str, query: str | None) -> Reward:
    return Reward(
        value=float(shown == hidden == 1.0),
        components={"runs": runs, "shown": shown, "hidden": hidden},
        explanation=told,
        details={"query": None if query is None else excerpt(query)},
    )
