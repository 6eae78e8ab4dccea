"""Tasks, players and cases of text to SQL: a player that knows the query, and one that guesses."""

import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing

from apps.gym.environments.task_generation import LEVELS, Call, Case, Difficulty, Kit, Move, Seen, ask, say
from apps.gym.environments.text_to_sql.databases.protocol import Database, Question
from apps.gym.environments.text_to_sql.databases.registry import DATABASES, build_database
from apps.gym.environments.text_to_sql.environment import HIDDEN, same_rows
from apps.gym.environments.text_to_sql.mutating import list_mutants
from apps.gym.environments.text_to_sql.query_guard import Table, run_query
from apps.gym.traces.items import TaskRow

SEEDS = 12
"""Number of visible databases of each kind."""


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    while True:
        name, level = dice.choice(sorted(DATABASES)), LEVELS[difficulty]
        database = DATABASES[name]
        question = dice.choice(database.questions[level]).draw(dice)
        seed = random.Random(question.text).randrange(SEEDS)
        if next(find_doubts(name, seed, question), None) is None:
            return {
                "responses_create_params": ask(_prompt(database, question, level)),
                "database": name,
                "database_seed": seed,
                "sql": question.sql,
                "ordered": question.ordered,
            }


def find_doubts(name: str, seed: int, question: Question) -> Iterator[str]:
    """Yield the problems of a question.

    It may have no rows, its visible rows may be right elsewhere too, or a wrong query may return the right rows on
    every database.
    """
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(_open(name, number))) for number in (seed, *HIDDEN)]
        right = [_run(connection, question.sql) for connection in connections]
        shown, *hidden = right
        if not shown.rows or all(value in (None, 0) for value in shown.rows[0]):
            yield "no rows"
        if sum(same_rows(shown, other, ordered=question.ordered) for other in hidden) * 2 > len(hidden):
            yield "the rows shown"
        for mutant in list_mutants(question.sql):
            if all(
                same_rows(wanted, _run(connection, mutant), ordered=question.ordered)
                for connection, wanted in zip(connections, right, strict=True)
            ):
                yield mutant


def _open(name: str, number: int) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(build_database(name, number))
    return connection


def _run(connection: sqlite3.Connection, query: str) -> Table:
    """Run a query without the guard, because the queries are our own."""
    cursor = connection.execute(query)
    return Table([], cursor.fetchall(), cut=False)


def _prompt(database: Database, question: Question, level: int) -> str:
    tables = f"These are its tables:\n\n{database.schema.strip()}\n\n" if level == 1 else ""
    return (
        f"You have tools to look into the SQLite database of {database.about}. {tables}Write one SELECT that "
        "answers this "
        f"question, with columns in the order in which the question names them:\n\n{question.text}\n\n"
        "Try it with the tools, then reply with the query in a ```sql fence. It will be run on other databases "
        "with the "
        "same tables too."
    )


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
