"""Text to SQL: two tools that read a small database; the reply's query must give what the row's own query gives."""

from typing import Any, ClassVar

from apps.gym.environments.protocol import ToolRefused, unknown_tool
from apps.gym.environments.text_to_sql.databases.registry import DATABASES, build_database
from apps.gym.environments.text_to_sql.execution_match import match_queries
from apps.gym.environments.text_to_sql.query_guard import QueryRefused, run_query
from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow, Tool, dump_json

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


class TextToSql:
    """Keeps nothing of an attempt: each query has a fresh copy of the database."""

    name: ClassVar[str] = "text_to_sql"
    description: ClassVar[str] = (
        "Tools list_tables and run_query over a small SQLite database. The query in the reply's last fence must "
        "give the "
        "rows of the row's own query, on this database and on others of the same tables."
    )
    tools: ClassVar[list[Tool]] = TOOLS
    needs: ClassVar[frozenset[str]] = frozenset({"database", "database_seed", "sql"})
    quick: ClassVar[bool] = False
    asks_judge: ClassVar[bool] = False

    def __init__(self, row: TaskRow, *, seed: int) -> None:
        self.row = row
        self.seed = seed

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        if name == "list_tables":
            return dump_json({"tables": self._schema()})
        if name != "run_query":
            raise unknown_tool(name, self.tools)
        sql = arguments.get("sql")
        if not isinstance(sql, str) or len(arguments) != 1:
            raise ToolRefused("bad_arguments", 'run_query takes one argument, {"sql": "SELECT …"}')
        try:
            table = run_query(build_database(*self._place()), sql, most_rows=_MOST_SHOWN)
        except QueryRefused as refusal:
            raise ToolRefused("sql_error", str(refusal)) from None
        return dump_json({"columns": table.columns, "rows": table.rows, "more_rows": table.cut})

    def respond(self, items: list[Item]) -> list[Item] | None:
        return None

    def verify(self, response: dict[str, Any]) -> Reward:
        return match_queries(self.row, response, *self._place())

    def _schema(self) -> str:
        return DATABASES[self._place()[0]].schema.strip()

    def _place(self) -> tuple[str, int]:
        name, seed = self.row.get("database"), self.row.get("database_seed")
        if name not in DATABASES or not isinstance(seed, int):
            names = ", ".join(DATABASES)
            raise VerifierError(f"the task row's `database` must be one of {names}, with a `database_seed`").lasting()
        return str(name), seed
