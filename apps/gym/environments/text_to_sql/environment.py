"""Text to SQL: two tools read a small database; the reply's query must return the rows of the row's own query."""

import re
from collections import Counter
from typing import Any, ClassVar

from apps.gym.code_blocks import find_block
from apps.gym.environments.protocol import BuiltinEnvironment, ToolRefused, read_single_text
from apps.gym.environments.text_to_sql.databases.registry import DATABASES, build_database
from apps.gym.environments.text_to_sql.query_guard import QueryRefused, Table, Value, run_query
from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, Tool, dump_json, last_assistant_text
from apps.gym.verifiers.answer_extraction import excerpt

HIDDEN = (10_001, 10_002, 10_003, 10_004, 10_005, 10_006)
"""Seeds of databases that no tool shows.

They expose a reply that copies the rows it saw, or that is right by chance.
"""
_MOST_ROWS = 2_000
_NEAR_ZERO = 1e-12
_SQL = frozenset({"sql", "sqlite", "sqlite3"})


def match_queries(row: TaskRow, response: dict[str, Any], name: str, seed: int) -> Reward:
    """Return 1.0 if the rows are the same on all databases. Raises VerifierError if the row's own query fails."""
    query = find_query(response)
    if query is None:
        return _reward(0.0, 0.0, 0.0, "there is no query in the reply", query)
    matches = []
    for number in (seed, *HIDDEN):
        database = build_database(name, number)
        try:
            wanted = run_query(database, str(row.get("sql")), most_rows=_MOST_ROWS)
        except QueryRefused as problem:
            raise VerifierError(f"the task row's own query cannot be run: {problem}").permanent() from None
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
    """Return the query of the last message, or None.

    It is the last SQL block, else the last block without a language, else the whole message if it is a query.
    """
    text = last_assistant_text(response.get("output") or []).strip()
    block = find_block([text], _SQL)
    if block is not None:
        return block.strip()
    return text if re.match(r"(?:select|with)\b", text, re.IGNORECASE) else None


def same_rows(wanted: Table, given: Table, *, ordered: bool) -> bool:
    """Compare rows.

    Columns are matched by position, not name; the order of rows counts only if the question asks for one.
    """
    if wanted.cut != given.cut:
        return False
    # Differences near 0 are 0, unless a column has only such values, for example charges in coulombs.
    tiny = [_is_tiny(column) for column in zip(*wanted.rows, *given.rows, strict=False)]
    one, other = ([_key(row, tiny) for row in table.rows] for table in (wanted, given))
    return one == other if ordered else Counter(one) == Counter(other)


def _is_tiny(column: tuple[Value, ...]) -> bool:
    return all(isinstance(value, float) and 0 < abs(value) < _NEAR_ZERO for value in column)


def _key(row: tuple[Value, ...], tiny: list[bool]) -> tuple[Value, ...]:
    """Return a row with nine significant digits: sums in another order differ after that."""
    return tuple(
        (float(f"{value:.9g}") if is_tiny or abs(value) >= _NEAR_ZERO else 0.0) if isinstance(value, float) else value
        for value, is_tiny in zip(row, tiny, strict=False)
    )


def _reward(runs: float, shown: float, hidden: float, told: str, query: str | None) -> Reward:
    return Reward(
        value=float(shown == hidden == 1.0),
        components={"runs": runs, "shown": shown, "hidden": hidden},
        explanation=told,
        details={"query": None if query is None else excerpt(query)},
    )


TOOLS: list[Tool] = [
    {
        "type": "function",
        "name": "list_tables",
        "description": "The tables of the database, as the statements that made them.",
        "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        "strict": True,
    },
    {
        "type": "function",
        "name": "run_query",
        "description": "Run one SELECT of SQLite and see up to 50 rows of its result.",
        "parameters": {
            "type": "object",
            "properties": {"sql": {"type": "string", "description": "For example SELECT COUNT(*) FROM orders"}},
            "required": ["sql"],
            "additionalProperties": False,
        },
        "strict": True,
    },
]
_MOST_SHOWN = 50


class TextToSql(BuiltinEnvironment):
    """A stateless environment: each query runs on a fresh copy of the database."""

    name: ClassVar[str] = "text_to_sql"
    description: ClassVar[str] = (
        "Two tools, list_tables and run_query, work on a small SQLite database. The query in the last code block must "
        "return the same rows as the row's query, on this database and on others with the same tables."
    )
    tools: ClassVar[list[Tool]] = TOOLS
    needs: ClassVar[frozenset[str]] = frozenset({"database", "database_seed", "sql"})
    runs_on_loop: ClassVar[bool] = False

    def list_tables(self, arguments: dict[str, Any]) -> str:
        return dump_json({"tables": DATABASES[self._place()[0]].schema.strip()})

    def run_query(self, arguments: dict[str, Any]) -> str:
        sql = read_single_text(arguments, "sql", 'run_query takes one argument, {"sql": "SELECT …"}')
        try:
            table = run_query(build_database(*self._place()), sql, most_rows=_MOST_SHOWN)
        except QueryRefused as refusal:
            raise ToolRefused("sql_error", str(refusal)) from None
        return dump_json({"columns": table.columns, "rows": table.rows, "more_rows": table.cut})

    def verify(self, response: dict[str, Any]) -> Reward:
        return match_queries(self.row, response, *self._place())

    def _place(self) -> tuple[str, int]:
        name, seed = self.row.get("database"), self.row.get("database_seed")
        if name not in DATABASES or not isinstance(seed, int):
            names = ", ".join(DATABASES)
            raise VerifierError(f"the task row's `database` must be one of {names}, with a `database_seed`").permanent()
        return str(name), seed
