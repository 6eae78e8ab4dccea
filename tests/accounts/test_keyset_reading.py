"""Reading many rows page by page: nothing stays open between two pages, so that the same connection may write."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.keyset_reading import read_by_key
from apps.tasks.models import Task
from tests.concurrent_writes import commits_before_each_write
from tests.factories import make_dataset, make_row


@pytest.fixture
def tasks(migrated):
    dataset = make_dataset([make_row(f"q{number}") for number in range(7)])
    return Task.objects.filter(dataset=dataset)


def test_every_row_comes_once_in_the_order_of_its_key(tasks):
    for size in (1, 3, 7, 100):
        assert [task.index for task in read_by_key(tasks, by="index", size=size)] == list(range(7))
        rows = tasks.values_list("index", "row_json")
        assert list(read_by_key(rows, by="index", size=size)) == list(rows.order_by("index"))


def test_a_page_is_a_query_and_the_last_short_one_ends_the_reading(tasks):
    with CaptureQueriesContext(connection) as queries:
        assert len(list(read_by_key(tasks, size=3))) == 7
    assert len(queries) == 3


def test_the_reader_may_write_between_two_rows_while_others_commit(tasks):
    with commits_before_each_write() as preceded:
        for task in read_by_key(tasks, size=2):
            Task.objects.filter(pk=task.pk).update(split="seen")
    assert len(preceded) == 7
    assert set(tasks.values_list("split", flat=True)) == {"seen"}
