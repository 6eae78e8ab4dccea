"""What comes with text to SQL: who knows the query, who selects anything, and cases."""

import re

from apps.gym.environments.task_generation import Call, Case, Kit, Move, Seen, ask, say
from apps.gym.environments.text_to_sql.databases.registry import DATABASES, build_database
from apps.gym.environments.text_to_sql.query_guard import run_query
from apps.gym.environments.text_to_sql.tasks import make_task
from apps.gym.traces.items import TaskRow


def _solve(seen: Seen) -> Move:
    if seen.turn == 0:
        return Move(calls=[Call("list_tables")])
    if seen.turn == 1:
        return _try(seen.row["sql"])
    return _answer(seen.row["sql"])


def _answer(sql: str) -> Move:
    return Move(text=f"This is the query:\n\n```sql\n{sql}\n```")


def _try(sql: str) -> Move:
    return Move(calls=[Call("run_query", {"sql": sql})])


def _guess(seen: Seen) -> Move:
    schema = DATABASES[seen.row["database"]].schema
    table = seen.dice.choice(re.findall(r"CREATE TABLE (\w+)", schema))
    column = seen.dice.choice(["*", "COUNT(*)", "id", "name", "MAX(id)"])
    return _answer(f"SELECT {column} FROM {table} LIMIT {seen.dice.randint(1, 20)}")


def _cases() -> list[Case]:
    row: TaskRow = {
        "responses_create_params": ask(
            "Which customers live in Cork? Give their names. Reply with a query in a fence."
        ),
        "database": "shop",
        "database_seed": 1,
        "sql": "SELECT name FROM customers WHERE city = 'Cork'",
    }
    seen = run_query(build_database("shop", 1), row["sql"], most_rows=100).rows
    copied = " UNION ALL ".join(f"SELECT '{name}'" for (name,) in seen)
    other = "SELECT c.name AS who FROM customers c WHERE lower(c.city) LIKE 'cork' ORDER BY 1 DESC"
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"
    hostile = {
        "more than one statement": "SELECT 1; DROP TABLE customers",
        "another file": "ATTACH '/etc/passwd' AS x",
        "a library": "SELECT load_extension('x')",
        "a change": "UPDATE customers SET city = 'Cork'",
        "a pragma": "PRAGMA writable_schema = 1",
        "without an end": endless,
    }
    return [
        Case(name="another query, the same rows", kind="full reward", row=row, play=say(_answer(other)), reward=1.0),
        Case(name="the rows written down", kind="zero reward", row=row, play=say(_answer(copied)), reward=0.0),
        Case(
            name="another city",
            kind="zero reward",
            row=row,
            play=say(_answer(other.replace("cork", "brno"))),
            reward=0.0,
        ),
        *(
            Case(name=name, kind="malformed", row=row, play=say(_try(sql), _answer(sql)), reward=0.0)
            for name, sql in hostile.items()
        ),
    ]


KIT = Kit(make_task=make_task, solve=_solve, guess=_guess, cases=_cases, max_steps=10)
