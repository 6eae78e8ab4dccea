"""What the system checks of the engine say, and what `rolloutworker` makes of them."""

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.utils import timezone

from apps.rollouts.checks import SEVERAL_PROCESSES, WORKER_STARTS
from apps.rollouts.models import Worker
from tests.migrated import lay_out

ROOT = Path(__file__).resolve().parents[2]
REDIS = {"default": {"BACKEND": "gymweb.channel_layer.PubSubLayer", "CONFIG": {"hosts": ["redis://127.0.0.1:1/0"]}}}
MEMORY = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}


def ids(*tags: str) -> list[str]:
    return [found.id for found in run_checks(tags=tags or None, include_deployment_checks=bool(tags))]


def make_worker(**fields: object) -> Worker:
    soon = timezone.now() + timedelta(minutes=10)
    return Worker.objects.create(**{"host": "elsewhere", "pid": 1, "seats": 8, "lease_expires_at": soon, **fields})


def test_the_defaults_raise_no_objection():
    assert ids() == []


@pytest.mark.parametrize(
    ("name", "value", "objections"),
    [
        ("WORKER_LEASE_SECONDS", 4.9, ["rollouts.W001"]),
        ("WORKER_LEASE_SECONDS", 5.0, []),
        ("WORKER_LEASE_SECONDS", 600.0, []),
        ("WORKER_LEASE_SECONDS", 601.0, ["rollouts.W001"]),
    ],
)
def test_settings_that_are_seldom_right_are_named(settings, name, value, objections):
    setattr(settings, name, value)
    found = run_checks()
    assert [one.id for one in found] == objections
    assert all(one.msg.startswith(f"GYMWEB_{name} is ") and one.hint for one in found)


def test_a_layer_in_memory_is_spoken_of_where_web_and_workers_are_apart(settings):
    settings.CHANNEL_LAYERS, settings.SECRET_KEY_GIVEN = MEMORY, True
    assert (ids(), ids(SEVERAL_PROCESSES)) == ([], ["rollouts.W002"])
    settings.CHANNEL_LAYERS = REDIS
    assert ids(SEVERAL_PROCESSES) == []


on_sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="speaks of SQLite")


@on_sqlite
@pytest.mark.django_db
def test_sqlite_with_a_live_worker_on_another_host_is_refused():
    make_worker(host="alpha")
    make_worker(host="alpha", state=Worker.State.DRAINING)
    make_worker(host="beta")
    [objection] = run_checks(tags=[WORKER_STARTS], include_deployment_checks=True)
    assert (objection.id, objection.msg.split(" use ")[0]) == ("rollouts.E005", "Workers on alpha, beta")
    assert "GYMWEB_DATABASE_URL" in objection.hint
    with pytest.raises(SystemCheckError, match=r"rollouts\.E005.*Workers on alpha, beta"):
        call_command("rolloutworker", skip_checks=False, stderr=StringIO())
    with pytest.raises(SystemCheckError, match=r"rollouts\.E005.*Workers on alpha, beta"):
        call_command("collect", dataset="x", model="y", skip_checks=False, stderr=StringIO())


@on_sqlite
@pytest.mark.django_db
def test_workers_of_this_host_and_dead_ones_of_others_are_no_objection():
    make_worker(host=socket.gethostname())
    make_worker(state=Worker.State.STOPPED)
    make_worker(state=Worker.State.LOST)
    make_worker(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert ids(WORKER_STARTS) == []


def command(*arguments: str, **environment: str) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_REDIS_URL": "", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_processes_do_not_start_with_settings_that_cannot_be_right(tmp_path):
    given = {"GYMWEB_VAR": str(tmp_path), "GYMWEB_DATABASE_URL": f"sqlite:///{tmp_path}/rows.sqlite3"}
    told = "GymWeb does not start: GYMWEB_WORKER_LEASE_SECONDS is '1e12': give a number from 1 to 86400 in plain digits"
    for started in ("rolloutworker", "serve", "check", "migrate"):
        code, said = command(started, GYMWEB_WORKER_LEASE_SECONDS="1e12", **given)
        assert (code, said) == (1, f"{told}, such as 30.\n"), started
    code, said = command("serve", "--port", "0", GYMWEB_OUTBOUND_ALLOW="10.0.0.0/8,10.0.0.0/99", **given)
    assert (code, "(policies.E001) GYMWEB_OUTBOUND_ALLOW: '10.0.0.0/99'" in said) == (1, True)


@pytest.mark.parametrize("started", ["serve", "rolloutworker"])
def test_no_worker_starts_beside_one_of_another_host_on_sqlite(tmp_path, started):
    path = tmp_path / "rows.sqlite3"
    given = {"GYMWEB_VAR": str(tmp_path), "GYMWEB_DATABASE_URL": f"sqlite:///{path}"}
    lay_out(path)
    now, soon = timezone.now().replace(tzinfo=None), timezone.now().replace(tzinfo=None) + timedelta(seconds=60)
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.execute(
            'INSERT INTO rollouts_worker (host, pid, "group", seats, busy, backlog, trouble, refuses, meters, state, '
            "started_at, heartbeat_at, lease_expires_at) "
            "VALUES ('alpha', 1, '', 8, 0, 0, '', '{}', '{}', 'active', ?, ?, ?)",
            [str(now), str(now), str(soon)],
        )
    code, said = command(started, *(["--port", "0"] if started == "serve" else []), **given)
    assert (code, "(rollouts.E005) Workers on alpha use this SQLite file too" in said) == (1, True), said


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--seats", "-5"], "argument --seats: '-5' is not a whole number from 1 to 100000"),
        (["--seats", "0"], "argument --seats: '0' is not a whole number from 1 to 100000"),
        (["--seats", "1e3"], "argument --seats: '1e3' is not a whole number from 1 to 100000"),
        (
            ["--group", "Übel x"],
            "argument --group: 'Übel x' is not a group name: use up to 64 letters, digits, hyphens and",
        ),
        (["--group", "x" * 65], "is not a group name: use up to 64 letters, digits, hyphens"),
    ],
)
def test_a_worker_is_not_started_with_options_that_cannot_be(options, complaint):
    with pytest.raises(CommandError, match=complaint):
        call_command("rolloutworker", *options)


@pytest.mark.parametrize(("option", "warns"), [("--no-chores", True), ("--no-background-jobs", False)])
def test_the_old_name_of_an_option_works_and_warns(monkeypatch, option, warns):
    started: list[bool] = []

    async def note(*args: object, background_jobs: bool) -> None:
        started.append(background_jobs)

    monkeypatch.setattr("apps.rollouts.management.commands.rolloutworker.work_until_stopped", note)
    mask, errors = os.umask(0o022), StringIO()
    try:
        call_command("rolloutworker", option, skip_checks=True, stderr=errors)
    finally:
        os.umask(mask)
    assert (started, "use --no-background-jobs" in errors.getvalue()) == ([False], warns)


def test_a_server_is_not_started_with_seats_that_cannot_be():
    with pytest.raises(CommandError, match="argument --seats: '0' is not a whole number"):
        call_command("serve", "--seats", "0")
