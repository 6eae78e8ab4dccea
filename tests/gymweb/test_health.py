"""/healthz and /readyz: what a load balancer is told of a process and of what stands behind it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from gymweb import health
from tests.deadlines import DEADLINE

pytestmark = pytest.mark.django_db(transaction=True)


def ready() -> tuple[int, dict[str, object]]:
    reply = Client().get("/readyz")
    return reply.status_code, reply.json()


def test_a_process_with_everything_is_ready():
    assert ready() == (200, {"ready": True, "missing": {}})


@contextmanager
def not_applied(app: str, name: str) -> Iterator[None]:
    """Delete the record of a migration until the block ends."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = %s AND name = %s", [app, name])
        assert cursor.rowcount == 1
        try:
            yield
        finally:
            applied = "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, CURRENT_TIMESTAMP)"
            cursor.execute(applied, [app, name])


def test_a_migration_that_waits_is_counted():
    with not_applied("pairs", "0001_initial"):
        status, said = ready()
    problem = "1 migration is not applied: run manage.py migrate"
    assert (status, said) == (503, {"ready": False, "missing": {"migrations": problem}})


def test_a_database_of_before_0_2_0_is_neither_used_nor_migrated():
    with not_applied("exports", "0004_trace_sends"):
        status, said = ready()
        with pytest.raises(CommandError, match="0004_trace_sends"):
            call_command("migrate", verbosity=0)
    assert (status, said["ready"], list(said["missing"])) == (503, False, ["migrations"])
    assert "exports.0004_trace_sends" in said["missing"]["migrations"]


def test_tables_of_another_version_are_named():
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('reviews', '9999_later', CURRENT_TIMESTAMP)"
        )
        # What is no app of ours is none of our business.
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('others', '0001_initial', CURRENT_TIMESTAMP)"
        )
        try:
            status, said = ready()
        finally:
            cursor.execute("DELETE FROM django_migrations WHERE app = 'others' OR name = '9999_later'")
    assert (status, said["ready"], list(said["missing"])) == (503, False, ["migrations"])
    assert "another version (9999_later was applied)" in said["missing"]["migrations"]


def test_a_database_that_fails_is_named_without_its_address(monkeypatch, tmp_path):
    away = {"sqlite": ("NAME", str(tmp_path / "nowhere" / "rows.sqlite3")), "postgresql": ("PORT", "1")}
    monkeypatch.setitem(connection.settings_dict, *away[connection.vendor])
    # The reader's thread has a connection of its own, made from the same settings.
    assert ready() == (503, {"ready": False, "missing": {"database": "unavailable"}})


def test_a_database_that_hangs_is_named_in_time_and_costs_one_thread(monkeypatch):
    let_go, asked = threading.Event(), []

    def hang() -> str:
        asked.append(1)
        let_go.wait(DEADLINE)
        return ""

    monkeypatch.setattr(health, "_run_database_check", hang)
    monkeypatch.setattr(health, "READY_SECONDS", 0.3)
    said = [ready() for _ in range(3)]
    let_go.set()
    assert said == [(503, {"ready": False, "missing": {"database": "no answer within 0.3 s"}})] * 3
    assert len(asked) == 1


def test_a_layer_that_is_away_is_named(settings):
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "gymweb.channel_layer.PubSubLayer",
            "CONFIG": {"hosts": [{"address": "redis://127.0.0.1:1/0", "socket_timeout": None}]},
        }
    }
    assert ready() == (503, {"ready": False, "missing": {"layer": "unavailable; pages poll instead"}})


def test_healthz_sends_no_query(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert Client().get("/healthz").content == b"ok\n"
