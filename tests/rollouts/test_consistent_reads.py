"""Queries of one block see one state of the database, and hold up nobody who writes."""

import threading

import pytest
from django.db import connection

from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.models import Collection
from tests.factories import make_collection

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_others_write_meanwhile_is_stored_but_not_seen():
    collection = make_collection(total=4, completed=1)

    def write() -> None:
        Collection.objects.update(completed=2)
        connection.close()

    with consistent_reads():
        collection.refresh_from_db()
        writer = threading.Thread(target=write)
        writer.start()
        writer.join(timeout=20)
        assert not writer.is_alive(), "the writer waits for the reader"
        collection.refresh_from_db()
        assert collection.completed == 1
    collection.refresh_from_db()
    assert collection.completed == 2


def test_later_transactions_take_the_lock_of_writers_again():
    mode = getattr(connection, "transaction_mode", None)
    with consistent_reads():
        Collection.objects.exists()
    assert getattr(connection, "transaction_mode", None) == mode
