"""Text-to-SQL tasks by seed: a question, its query, and a database on which both mean something."""

import random

from apps.gym.builtin.generating import Difficulty, ask
from apps.gym.builtin.text_to_sql.databases.protocol import Database, Question
from apps.gym.builtin.text_to_sql.databases.registry import DATABASES, build_database
from apps.gym.builtin.text_to_sql.guarding import run_query
from apps.gym.builtin.text_to_sql.matching import HIDDEN, same_rows
from apps.gym.items import TaskRow

_LEVEL: dict[Difficulty, int] = {"easy": 1, "medium": 2, "hard": 3}
SEEDS = 12
"""So many databases of each kind are shown."""


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    while True:
        name, level = dice.choice(sorted(DATABASES)), _LEVEL[difficulty]
        database = DATABASES[name]
        question = dice.choice(database.questions[level])(dice)
        seed = random.Random(question.text).randrange(SEEDS)
        if _means_something(name, seed, question):
            return {
                "responses_create_params": ask(_prompt(database, question, level)),
                "database": name,
                "database_seed": seed,
                "sql": question.sql,
                "ordered": question.ordered,
            }


def _means_something(name: str, seed: int, question: Question) -> bool:
    """It gives rows here, and other rows on the hidden databases: who wrote the rows down would be found out."""
    shown, *hidden = (
        run_query(build_database(name, seed + more), question.sql, most_rows=2_000) for more in (0, *HIDDEN)
    )
    some = bool(shown.rows) and any(value not in (None, 0) for value in shown.rows[0])
    return some and not any(same_rows(shown, other, ordered=question.ordered) for other in hidden)


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
