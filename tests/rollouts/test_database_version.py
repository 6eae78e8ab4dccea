"""The version of SQLite changes with each write, whoever makes it, and with nothing else."""

import sqlite3
from contextlib import closing

import pytest
from django.db import connection

from apps.agents.models import Agent
from apps.rollouts.database_version import read_version
from apps.rollouts.engine.background_jobs import BackgroundJobs
from tests.factories import make_agent

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL has no such version"),
]


def write_elsewhere() -> None:
    """Write on a connection of its own, as another process does."""
    with closing(sqlite3.connect(connection.settings_dict["NAME"])) as other, other:
        other.execute("UPDATE agents_agent SET name = 'Changed elsewhere'")


def test_the_version_changes_with_each_write():
    make_agent()
    writes = [
        write_elsewhere,
        lambda: Agent.objects.update(name="Changed here"),
        write_elsewhere,
        lambda: Agent.objects.all().delete(),
    ]
    for write in writes:
        before = read_version()
        assert read_version() == before
        assert Agent.objects.exists()
        assert read_version() == before
        write()
        assert read_version() != before


def test_another_connection_has_another_version():
    before = read_version()
    connection.close()
    assert read_version() != before


def test_jobs_are_looked_for_only_after_a_change(django_assert_num_queries):
    jobs = BackgroundJobs(["apps.pairs.pair_set_jobs.make_queued_pair_set"], group="", in_database=None)
    with django_assert_num_queries(2):
        assert jobs._due() == []
    with django_assert_num_queries(1):
        assert jobs._due() == []
    jobs.close()
    write_elsewhere()
    make_agent()
    with django_assert_num_queries(2):
        assert jobs._due() == []
