"""A task is worth something only where a query that is nearly right gives other rows."""

import random
import re

import pytest

from apps.gym.environments.kits import KITS
from apps.gym.environments.task_generation import DIFFICULTIES, generate_tasks
from apps.gym.environments.text_to_sql.databases.registry import DATABASES
from apps.gym.environments.text_to_sql.environment import TextToSql
from apps.gym.environments.text_to_sql.kit import SEEDS, find_doubts
from apps.gym.environments.text_to_sql.mutating import list_mutants
from tests.gym.verifiers.replies import attempt, says

KINDS = {
    f"{name}-{level}-{number}": (name, kind)
    for name, database in DATABASES.items()
    for level, kinds in database.questions.items()
    for number, kind in enumerate(kinds)
}


def reward(row, query):
    return TextToSql(row).verify(attempt(says(f"```sql\n{query}\n```"))).value


def test_mutants_are_the_query_with_one_thing_changed():
    assert list_mutants("SELECT DISTINCT a FROM t WHERE b > 3 AND c BETWEEN 'x' AND 'y' ORDER BY a DESC LIMIT 2") == [
        "SELECT DISTINCT a FROM t WHERE b > 3 AND c > 'x' AND c <= 'y' ORDER BY a DESC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE b > 3 AND c >= 'x' AND c < 'y' ORDER BY a DESC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE b > 3 AND c >= 'x' ORDER BY a DESC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE b > 3 AND c <= 'y' ORDER BY a DESC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE b > 3 AND c BETWEEN 'x' AND 'y' ORDER BY a DESC LIMIT 1",
        "SELECT DISTINCT a FROM t WHERE b > 3 AND c BETWEEN 'x' AND 'y' ORDER BY a DESC LIMIT 3",
        "SELECT a FROM t WHERE b > 3 AND c BETWEEN 'x' AND 'y' ORDER BY a DESC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE b >= 3 AND c BETWEEN 'x' AND 'y' ORDER BY a DESC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE b < 3 AND c BETWEEN 'x' AND 'y' ORDER BY a DESC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE b > 3 AND c BETWEEN 'x' AND 'y' ORDER BY a ASC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE c BETWEEN 'x' AND 'y' ORDER BY a DESC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE b > 3 ORDER BY a DESC LIMIT 2",
        "SELECT DISTINCT a FROM t WHERE b > 3 AND c BETWEEN 'x' AND 'y' LIMIT 2",
    ]
    assert list_mutants("SELECT SUM(a) FROM t WHERE (b = 1 OR c IS NULL) GROUP BY d HAVING COUNT(*) >= 2") == [
        "SELECT SUM ( a ) FROM t WHERE ( b = 1 OR c IS NULL ) GROUP BY d HAVING COUNT ( * ) >= 1",
        "SELECT SUM ( a ) FROM t WHERE ( b = 1 OR c IS NULL ) GROUP BY d HAVING COUNT ( * ) >= 3",
        "SELECT COUNT ( a ) FROM t WHERE ( b = 1 OR c IS NULL ) GROUP BY d HAVING COUNT ( * ) >= 2",
        "SELECT MAX ( a ) FROM t WHERE ( b = 1 OR c IS NULL ) GROUP BY d HAVING COUNT ( * ) >= 2",
        "SELECT SUM ( a ) FROM t WHERE ( b = 1 AND c IS NULL ) GROUP BY d HAVING COUNT ( * ) >= 2",
        "SELECT SUM ( a ) FROM t WHERE ( b = 1 OR c IS NOT NULL ) GROUP BY d HAVING COUNT ( * ) >= 2",
        "SELECT SUM ( a ) FROM t WHERE ( b = 1 OR c IS NULL ) GROUP BY d HAVING COUNT ( * ) > 2",
        "SELECT SUM ( a ) FROM t WHERE ( b = 1 OR c IS NULL ) GROUP BY d HAVING COUNT ( * ) < 2",
        "SELECT SUM ( a ) FROM t GROUP BY d HAVING COUNT ( * ) >= 2",
        "SELECT SUM ( a ) FROM t WHERE ( b = 1 ) GROUP BY d HAVING COUNT ( * ) >= 2",
        "SELECT SUM ( a ) FROM t WHERE ( c IS NULL ) GROUP BY d HAVING COUNT ( * ) >= 2",
        "SELECT SUM ( a ) FROM t WHERE ( b = 1 OR c IS NULL ) GROUP BY d",
    ]


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_a_nearly_right_query_has_no_reward_on_any_task(difficulty):
    for row in generate_tasks(KITS["text_to_sql"], count=15, seed=11, difficulty=difficulty):
        wrong = list_mutants(row["sql"])
        # Some more, made otherwise than those that the generator looks at.
        wrong += [row["sql"][: found.start()] for found in re.finditer(" HAVING | ORDER BY | LIMIT ", row["sql"])]
        wrong += [row["sql"].replace(one, f"{int(one[:4]) + 1}{one[4:]}") for one in re.findall(r"\d{4}-", row["sql"])]
        assert [query for query in wrong if reward(row, query) != 0.0] == []
        assert reward(row, " ".join(row["sql"].split())) == 1.0


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_question_can_be_told_from_its_mutants(name):
    database, kind = KINDS[name]
    dice = random.Random(name)
    drawn = [kind.draw(dice) for _ in range(60)]
    accepted = (next(find_doubts(database, at % SEEDS, one), None) is None for at, one in enumerate(drawn))
    assert any(accepted)
