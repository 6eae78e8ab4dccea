"""System checks of the database's version and of the secret key, and how that key comes to be."""

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from django.core.checks import run_checks
from django.db import NotSupportedError, OperationalError, connection

from apps.rollouts.checks import PROCESS_STARTS, SEVERAL_PROCESSES
from gymweb import checks
from tests.deadlines import DEADLINE
from tests.gymweb.serving import ROOT


def test_an_old_sqlite_is_refused(monkeypatch):
    old = SimpleNamespace(sqlite_version_info=(3, 36, 9), sqlite_version="3.36.9")
    monkeypatch.setattr(checks, "connection", SimpleNamespace(vendor="sqlite"))
    monkeypatch.setattr(checks, "sqlite3", old)
    [objection] = run_checks()
    assert objection.id == "gymweb.E001"
    assert ("3.36.9" in objection.msg, "3.37" in objection.msg) == (True, True)
    old.sqlite_version_info = (3, 37, 0)
    assert run_checks() == []


class Server:
    vendor = "postgresql"

    def __init__(self, version: int, refused: Exception | None = None) -> None:
        self.pg_version, self.refused = version, refused

    def ensure_connection(self) -> None:
        if self.refused:
            raise self.refused


def objections(monkeypatch, server: object) -> list[tuple[str, str]]:
    monkeypatch.setattr(checks, "connections", {"default": server})
    found = checks.check_postgres(databases=["default"])
    return [(one.id, one.msg) for one in found]


@pytest.mark.django_db
def test_an_old_postgres_is_refused(monkeypatch):
    old = "PostgreSQL is too old: GymWeb needs 14 or newer, and this is "
    assert objections(monkeypatch, Server(130_012)) == [("gymweb.E002", f"{old}13.")]
    refused = NotSupportedError("PostgreSQL 14 or later is required (found 12.2).")
    assert objections(monkeypatch, Server(0, refused)) == [("gymweb.E002", f"{old}{refused}.")]
    assert objections(monkeypatch, Server(140_000)) == []
    assert objections(monkeypatch, Server(0, OperationalError("away"))) == []
    assert objections(monkeypatch, connection) == []


def test_a_generated_key_is_spoken_of_where_processes_may_be_on_several_machines(monkeypatch, settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "gymweb.channel_layer.PubSubLayer"}}
    monkeypatch.setattr(checks, "connection", SimpleNamespace(vendor="postgresql"))

    def ids() -> list[str]:
        return [one.id for one in run_checks(tags=[SEVERAL_PROCESSES], include_deployment_checks=True)]

    settings.SECRET_KEY_GIVEN = False
    assert ids() == ["gymweb.W001"]
    settings.SECRET_KEY_GIVEN = True
    assert ids() == []


def test_processes_that_start_together_generate_one_key(tmp_path):
    environment = {**os.environ, "GYMWEB_VAR": str(tmp_path), "GYMWEB_SECRET_KEY": ""}
    code = "from gymweb.settings import SECRET_KEY; print(SECRET_KEY)"
    together = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    keys = {process.communicate(timeout=DEADLINE)[0].strip() for process in together}
    kept = tmp_path / "secret_key"
    assert (keys, oct(kept.stat().st_mode)[-3:]) == ({kept.read_text()}, "600")
    assert len(kept.read_text()) == 64
    assert [path.name for path in tmp_path.glob("secret_key*")] == ["secret_key"]


@pytest.mark.parametrize(
    "words", [["serve", "--port", "0"], ["serve", "--no-worker", "--port", "0"], ["rolloutworker"]]
)
def test_an_unmigrated_database_is_refused_with_the_remedy(tmp_path, words):
    ended = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "gymweb.settings",
            "GYMWEB_VAR": str(tmp_path),
            "GYMWEB_DATABASE_URL": f"sqlite:///{tmp_path}/new.sqlite3",
            "GYMWEB_REDIS_URL": "",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 1
    assert "GymWeb does not start on this database: " in ended.stderr
    assert "\n\tHINT: Run manage.py migrate" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.django_db
def test_a_database_with_tables_of_a_newer_version_is_refused():
    applied = "INSERT INTO django_migrations (app, name, applied) VALUES ('tasks', '9999_later', CURRENT_TIMESTAMP)"
    with connection.cursor() as cursor:
        cursor.execute(applied)
    [objection] = run_checks(tags=[PROCESS_STARTS], include_deployment_checks=True)
    assert objection.id == "gymweb.E003"
    assert ("restore a backup" in objection.hint, "before 0.2.0" in objection.hint) == (True, True)
    assert "9999_later" in objection.msg


@pytest.mark.django_db
def test_tables_of_this_version_are_no_objection():
    assert run_checks(tags=[PROCESS_STARTS], include_deployment_checks=True) == []


SIGN_ON = {"issuer": "https://login.example.org", "client_id": "gymweb", "roles": {"team": "engineer"}}


@pytest.mark.parametrize(
    ("changes", "ids"),
    [
        ({}, []),
        ({"issuer": "http://127.0.0.1:9000"}, []),
        ({"issuer": "http://localhost:9000/realm"}, []),
        ({"issuer": "http://login.example.org"}, ["gymweb.E006"]),
        ({"client_id": ""}, ["gymweb.E004"]),
        ({"roles": {}}, ["gymweb.E005"]),
        ({"roles": {"team": "owner"}}, ["gymweb.E005"]),
        ({"issuer": ""}, ["gymweb.W005"]),
        ({"issuer": "", "roles": {}, "client_id": ""}, []),
    ],
)
def test_contradictory_settings_of_single_sign_on_are_named(settings, changes, ids):
    settings.OIDC = replace(settings.OIDC, **{**SIGN_ON, **changes})
    assert [one.id for one in checks.check_single_sign_on()] == ids


def test_a_process_with_contradictory_settings_does_not_start(tmp_path):
    given = {"GYMWEB_VAR": str(tmp_path), "GYMWEB_OIDC_ISSUER": "https://login.example.org"}
    words = [sys.executable, "manage.py", "serve", "--port", "0"]
    done = subprocess.run(
        words, check=False, cwd=ROOT, env={**os.environ, **given}, capture_output=True, text=True, timeout=DEADLINE
    )
    assert (done.returncode, "gymweb.E004" in done.stderr, "gymweb.E005" in done.stderr) == (1, True, True)
