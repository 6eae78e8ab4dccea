"""Text-to-SQL tasks by seed: a question, its query, and databases that tell it from the queries close to it."""

import random
import sqlite3
from collections.abc import Iterator

from apps.gym.environments.task_generation import Difficulty, ask
from apps.gym.environments.text_to_sql.databases.protocol import Database, Question
from apps.gym.environments.text_to_sql.databases.registry import DATABASES, build_database
from apps.gym.environments.text_to_sql.execution_match import HIDDEN, same_rows
from apps.gym.environments.text_to_sql.mutating import list_mutants
from apps.gym.environments.text_to_sql.query_guard import Table
from apps.gym.traces.items import TaskRow

_LEVEL: dict[Difficulty, int] = {"easy": 1, "medium": 2, "hard": 3}
SEEDS = 12
"""So many databases of each kind are shown."""


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    while True:
        name, level = dice.choice(sorted(DATABASES)), _LEVEL[difficulty]
        database = DATABASES[name]
        question = dice.choice(database.questions[level])(dice)
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
    """Why the question means too little: who writes down the rows that the tools show would be right elsewhere, or a
    wrong query gives the right rows on every database."""
    connections = [_open(name, number) for number in (seed, *HIDDEN)]
    try:
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
    finally:
        for connection in connections:
            connection.close()


def _open(name: str, number: int) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(build_database(name, number))
    return connection


def _run(connection: sqlite3.Connection, query: str) -> Table:
    """Without a guard: the queries are our own."""
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
