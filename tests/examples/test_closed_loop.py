"""The closed loop's parts: its tasks leak nothing, its table says what it compared. tests/trainers runs a small one."""

import re

import pytest

from examples.closed_loop.loop import compare, distinct_rows, question_of, table
from tests.factories import make_collection, make_dataset, make_rollout, make_row


def expressions(rows: list[dict]) -> set[str]:
    found = (re.search(r"\d.*\d\)?|\(.*\d", question_of(row)) for row in rows)
    return {one[0] for one in found if one}


def test_questions_are_unique_and_splits_share_no_expression() -> None:
    train = distinct_rows(500, seed=101, held_out=False)
    held_out = distinct_rows(500, seed=102, held_out=True)
    assert len({question_of(row) for row in [*train, *held_out]}) == 1000
    assert len(expressions(train)) > 450
    assert len(expressions(held_out)) > 300
    assert expressions(train) & expressions(held_out) == set()


@pytest.mark.django_db
def test_both_sides_are_compared_by_task_and_the_page_is_named() -> None:
    dataset = make_dataset([make_row(str(number)) for number in range(40)])
    sides = [make_collection(dataset=dataset) for _ in range(2)]
    for number, task in enumerate(dataset.latest_version().tasks.order_by("index")):
        for repeat in range(2):
            make_rollout(sides[0], task=task, reward=float(number % 2), trace=[], repeat=repeat)
            make_rollout(sides[1], task=task, reward=float(number % 4 != 0), trace=[], repeat=repeat)
    found = compare(7, sides[0].pk, sides[1].pk)
    assert (found["seed"], found["tasks"]) == (7, 40)
    assert (found["before"], found["after"], found["difference"]) == (0.5, 0.75, 0.25)
    assert 0 < found["low"] < 0.25 < found["high"] < 0.5
    assert (found["newly_solved"], found["no_longer_solved"]) == (10, 0)
    row = table([found]).splitlines()[1]
    assert row.startswith("7     40     0.500   0.750   +0.250")
    assert row.endswith(f"http://127.0.0.1:8000/collections/compare/?a={sides[0].pk}&b={sides[1].pk}")
