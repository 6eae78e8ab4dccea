"""The servers that the scenarios break are real: they crash, come back with what was committed, and are ours alone."""

import os
import shutil
from pathlib import Path

import psycopg
import pytest

from scripts import servers


def test_postgres_keeps_committed_rows_after_a_crash(database: servers.Postgres) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    doomed = psycopg.connect(database.url)
    doomed.execute("INSERT INTO kept VALUES (43)")
    pid = database.pid
    database.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(psycopg.OperationalError):
        doomed.execute("SELECT 1")
    doomed.close()
    database.start()
    with psycopg.connect(database.url) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchall() == [(42,)]
        connection.execute("DROP TABLE kept")
    assert "database system was not properly shut down" in database.log.read_text()


def test_the_cpu_of_postgres_counts_ended_backends(database: servers.Postgres) -> None:
    before = database.cpu_seconds()
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT sum(number) FROM generate_series(1, 2000000) AS number")
    assert database.cpu_seconds() - before >= 0.1


def test_redis_comes_back_empty_on_its_port(layer: servers.Redis) -> None:
    assert layer.ask("SET name value") == "+OK"
    layer.kill()
    with pytest.raises(OSError):
        layer.ask("PING")
    layer.start()
    assert layer.ask("GET name") == "$-1"
    assert layer.cpu_seconds() >= 0.0


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "POSTGRES_FOLDERS", "/nowhere/*/bin")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(servers.ServerMissing, match="apt-get install postgresql"), servers.postgres():
        pass
    with pytest.raises(servers.ServerMissing, match="apt-get install redis-server"), servers.redis():
        pass


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_nothing_is_left_of_a_server_that_is_no_longer_needed() -> None:
    with servers.redis() as server:
        pid, folder = server.pid, server.folder
        assert Path(f"/proc/{pid}").exists()
    assert (Path(f"/proc/{pid}").exists(), folder.exists()) == (False, False)
