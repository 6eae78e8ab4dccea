"""Task rows in a request for rollouts: equal rows share a version, and all are run or refused."""

import pytest

from apps.tasks.models import Task
from apps.tasks.request_rows import RowsRefused, accept_rows
from apps.tasks.task_marks import mark_tasks
from tests.factories import make_environment, make_row

pytestmark = pytest.mark.django_db

TOKEN = "ghp_" + "a1B2c3D4e" * 4
SHAPES = {
    "tasks": [make_row("What is 2 + 2?", "4")],
    "prompts and answers": [{"question": "What is 2 + 2?", "answer": "4"}, {"question": "And 2 + 3?", "answer": "5"}],
    "messages": [{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}],
    "a credential": [make_row(f"Is {TOKEN} safe?", "4"), make_row("2 + 2?", "4")],
}


@pytest.mark.parametrize("rows", SHAPES.values(), ids=SHAPES)
def test_the_same_rows_are_the_same_version_whatever_their_shape(rows):
    environment = make_environment(builtin="exact_match")
    versions = [accept_rows(environment=environment, rows=rows) for _ in range(3)]
    assert [version.number for version in versions] == [1, 1, 1]
    # Rows are stored as sent: a suspected credential may be part of what is scored.
    assert any(TOKEN in row for row in Task.objects.values_list("row_json", flat=True)) == (TOKEN in str(rows))
    assert accept_rows(environment=environment, rows=[*rows, *rows]).number == 2


def test_rows_that_are_retired_are_refused_by_their_places_instead_of_running_fewer():
    environment = make_environment(builtin="exact_match")
    rows = [make_row(f"What is {number} + 2?", str(number + 2), id=f"t{number}") for number in range(3)]
    version = accept_rows(environment=environment, rows=rows)
    task = Task.objects.get(version=version, index=1)
    mark_tasks(task_ids=[task.pk], retired=True)
    # In another version of them the task keeps that mark.
    for asked in (rows, rows[1:]):
        with pytest.raises(RowsRefused, match="1 of these rows is a retired task") as refused:
            accept_rows(environment=environment, rows=asked)
        assert [(one["row"], one["code"]) for one in refused.value.errors] == [(asked.index(rows[1]), "retired")]
    assert accept_rows(environment=environment, rows=[rows[0], rows[2]]).task_count == 2
