"""The folder of everything that is written is closed to others: when it is made, and where GymWeb left it open."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.core.management import call_command

from apps.tasks.received_files import store_file
from apps.tasks.rejected_rows import rejects_file
from apps.tasks.upload_jobs import load_now
from gymweb.folders import make_file_private, make_private
from tests.factories import make_dataset
from tests.gymweb.serving import ROOT

WRITES = """
import django
django.setup()
from django.db import connection
connection.cursor().execute("CREATE TABLE rows (id INTEGER)")
connection.cursor().execute("INSERT INTO rows VALUES (1)")
import os
print(sorted(os.listdir(os.environ["GYMWEB_VAR"])))
"""
FILES = ["gymweb.sqlite3", "gymweb.sqlite3-shm", "gymweb.sqlite3-wal", "secret_key"]
FOLDERS = ["exports", "tmp", "tracking", "uploads"]


@pytest.fixture(autouse=True)
def _usual_mask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def start(var: Path) -> str:
    given = {**os.environ, "GYMWEB_VAR": str(var), "DJANGO_SETTINGS_MODULE": "gymweb.settings"}
    for name in ("GYMWEB_DATABASE_URL", "GYMWEB_SECRET_KEY"):
        given.pop(name, None)
    # -wal and -shm are there as long as the process is: their modes are read by the process that looks at them.
    looks = f"{WRITES}\nprint({{one: oct(os.stat(f'{var}/{{one}}').st_mode & 0o777) for one in {FILES + FOLDERS}}})"
    ran = subprocess.run(
        [sys.executable, "-c", looks], cwd=ROOT, env=given, check=True, text=True, stdout=subprocess.PIPE
    )
    return ran.stdout


def test_files_of_the_first_start_are_private(tmp_path):
    var = tmp_path / "srv" / "var"
    told = start(var)
    modes = {**dict.fromkeys(FILES, "0o600"), **dict.fromkeys(FOLDERS, "0o700")}
    assert told.splitlines() == [str(sorted(modes)), str(modes)]
    assert (mode(var), mode(var.parent)) == ("0o700", "0o755")


def test_what_an_earlier_gymweb_left_open_is_closed_at_the_next_start(tmp_path):
    var = tmp_path / "var"
    for name in FOLDERS:
        (var / name).mkdir(parents=True)
    for name in ("gymweb.sqlite3", "secret_key"):
        (var / name).touch(0o644)
    assert mode(var) == "0o755"
    make_private(var, is_ours=False)
    assert mode(var) == "0o700"
    assert {mode(var / name) for name in FOLDERS} == {"0o700"}
    assert {mode(var / name) for name in ("gymweb.sqlite3", "secret_key")} == {"0o600"}


def test_a_shared_folder_keeps_its_mode_and_new_folders_are_private(tmp_path):
    var = tmp_path / "home"
    (var / "tmp").mkdir(parents=True)
    (var / "letters").mkdir()
    (var / "letters.txt").touch(0o644)
    make_private(var, is_ours=False)
    assert [mode(one) for one in (var, var / "tmp", var / "letters", var / "letters.txt")] == [
        "0o755",
        "0o700",
        "0o755",
        "0o644",
    ]
    make_private(var, is_ours=True)
    assert [mode(var), mode(var / "letters")] == ["0o700", "0o755"]


def test_an_empty_folder_becomes_private_and_a_chosen_mode_is_kept(tmp_path):
    empty, chosen = tmp_path / "empty", tmp_path / "chosen"
    empty.mkdir()
    (chosen / "uploads").mkdir(parents=True)
    chosen.chmod(0o750)
    (chosen / "uploads").chmod(0o2750)
    for folder in (empty, chosen):
        make_private(folder, is_ours=False)
    assert [mode(empty), mode(chosen), mode(chosen / "uploads")] == ["0o700", "0o750", "0o2750"]


def test_a_link_is_not_followed_to_what_it_names(tmp_path):
    elsewhere, var = tmp_path / "elsewhere", tmp_path / "var"
    for folder in (elsewhere, var):
        folder.mkdir()
    (var / "exports").symlink_to(elsewhere)
    make_private(var, is_ours=False)
    assert [mode(var), mode(elsewhere)] == ["0o700", "0o755"]


def test_a_database_that_is_there_is_left_alone(tmp_path):
    path = tmp_path / "rows.sqlite3"
    path.write_bytes(b"rows")
    os.utime(path, (1, 1))
    make_file_private(path)
    assert (path.read_bytes(), path.stat().st_mtime, mode(path)) == (b"rows", 1, "0o644")


@pytest.mark.parametrize(
    ("given", "who"),
    [
        (0o700, ""),
        (0o750, "its group"),
        (0o710, "its group"),
        (0o755, "all users of this machine"),
        (0o701, "all users of this machine"),
    ],
)
def test_a_check_says_who_else_may_read(tmp_path, settings, given, who):
    settings.VAR_DIR = tmp_path
    tmp_path.chmod(given)
    told = f"{tmp_path} is readable by {who},"
    found = [(one.id, told in one.msg) for one in run_checks()]
    assert found == ([("gymweb.W002", True)] if who else [])


@pytest.mark.django_db
def test_uploaded_files_are_private(tmp_path, settings):
    settings.UPLOADS_DIR = tmp_path / "var" / "uploads"
    (tmp_path / "rows.jsonl").write_bytes(b"nonsense\n")
    with (tmp_path / "rows.jsonl").open("rb") as stream:
        upload = store_file(dataset=make_dataset(), stream=stream, filename="rows.jsonl")
    parts = settings.UPLOADS_DIR / f"{upload.pk}.parts"
    assert (mode(settings.UPLOADS_DIR), mode(parts)) == ("0o700", "0o600")
    load_now(upload=upload)
    assert mode(rejects_file(upload)) == "0o600"


@pytest.mark.parametrize("command", ["serve", "rolloutworker"])
def test_a_process_that_serves_or_works_writes_for_its_own_user(monkeypatch, command):
    masks: list[int] = []
    monkeypatch.setattr(tempfile, "tempdir", None)  # put back after the command has set it

    def note(*args: object, **options: object) -> None:
        masks.append(os.umask(0o022))

    def run(server: object) -> None:
        note()

    monkeypatch.setattr("gymweb.serving.Server.run", run)
    monkeypatch.setattr("apps.rollouts.management.commands.rolloutworker.work_until_stopped", note)
    monkeypatch.setattr("apps.rollouts.management.commands.rolloutworker.uvloop.run", lambda _: None)
    call_command(command, *(["--no-worker"] if command == "serve" else []), skip_checks=True)
    assert masks == [0o077]
