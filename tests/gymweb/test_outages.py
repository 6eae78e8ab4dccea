"""While the database is away everybody is told so, in their own form; a query that is wrong stays a bug."""

import sqlite3

import psycopg
import pytest
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connection
from django.test import Client

from apps.accounts.outages import is_outage, is_transient

AWAY = "The database is unavailable."


def raised(error: type[Exception], cause: Exception) -> Exception:
    wrapped = error(*cause.args)
    wrapped.__cause__ = cause
    return wrapped


def sqlite_error(sql: str, path: str = ":memory:") -> Exception:
    with pytest.raises(sqlite3.OperationalError) as caught:
        rows = sqlite3.connect(path)
        try:
            rows.execute(sql)
        finally:
            rows.close()
    return raised(OperationalError, caught.value)


def test_transient_errors_are_distinguished_from_bugs():
    errors = psycopg.errors
    for cause in (errors.AdminShutdown(), errors.CannotConnectNow(), errors.TooManyConnections(), errors.DiskFull()):
        assert is_outage(raised(OperationalError, cause)), cause
    assert is_outage(raised(OperationalError, psycopg.OperationalError("connection failed: Connection refused")))
    assert is_outage(raised(InterfaceError, psycopg.InterfaceError("the connection is closed")))
    for cause in (errors.QueryCanceled(), errors.DeadlockDetected()):
        assert not is_outage(raised(OperationalError, cause)), cause
    assert not is_outage(raised(InterfaceError, psycopg.InterfaceError("the cursor is closed")))
    assert not is_outage(raised(DatabaseError, psycopg.DatabaseError("x")))
    assert (is_outage(None), is_outage(ValueError("connection"))) == (False, False)
    assert is_outage(sqlite_error("SELECT 1", "/nowhere/rows.sqlite3"))
    assert not is_outage(sqlite_error("SELECT * FROM nothing"))
    assert not is_outage(sqlite_error("SELECT FROM"))


def test_a_job_is_repeated_after_an_outage_and_after_a_lost_race():
    errors = psycopg.errors
    for cause in (errors.AdminShutdown(), errors.DeadlockDetected(), errors.SerializationFailure()):
        assert is_transient(raised(OperationalError, cause)), cause
    assert is_transient(raised(InternalError, errors.IdleInTransactionSessionTimeout()))
    assert is_transient(sqlite_error("SELECT 1", "/nowhere/rows.sqlite3"))
    for cause in (errors.QueryCanceled(), errors.UndefinedTable()):
        assert not is_transient(raised(OperationalError, cause)), cause
    assert not is_transient(sqlite_error("SELECT * FROM nothing"))
    assert (is_transient(None), is_transient(ValueError("connection"))) == (False, False)


@pytest.fixture
def away(tmp_path, transactional_db):
    """The database of the test, out of reach until the test ends."""
    where = {"sqlite": ("NAME", str(tmp_path / "nowhere" / "rows.sqlite3")), "postgresql": ("PORT", "1")}
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict, *where[connection.vendor])
        yield
        connection.close()


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False, headers={"Authorization": "Bearer gw_abcdefgh_x"})


@pytest.mark.parametrize("path", ["/api/v1/collections/", "/api/v1/me/"])
def test_a_program_gets_a_problem_document_and_is_told_when_to_come_back(away, client, path):
    answer = client.get(path)
    assert (answer.status_code, answer.headers["Retry-After"], answer.headers["Content-Type"]) == (
        *(503, "5", "application/problem+json"),
    )
    told = answer.json()
    assert "in 5 seconds" in told.pop("detail")
    assert told.pop("request_id") == answer.headers["X-Request-ID"]
    assert told == {
        "type": "urn:gymweb:problem:database-away",
        "title": "Service Unavailable",
        "status": 503,
        "instance": path,
    }


def test_a_scrape_gets_plain_text(away, client):
    answer = client.get("/metrics")
    assert (answer.status_code, answer.headers["Retry-After"], answer.headers["Content-Type"], answer.text) == (
        *(503, "5", "text/plain", f"{AWAY}\n"),
    )


def test_a_person_gets_a_page_of_its_own(away, client):
    client.cookies["sessionid"] = "a" * 32
    answer = client.get("/collections/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "<h1>Database unavailable</h1>" in answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
