"""A backup is written while workers, uploads and exports run, and restored into another installation."""

import contextlib
import hashlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import psycopg
import pytest

from tests.faults.conftest import RESERVE
from tests.faults.installation import ROOT, Api, Installation, size, wait_until
from tests.faults.judging import judge
from tests.faults.plan import make_row

pytestmark = pytest.mark.slow
READY = "SELECT count(*) FROM exports_export WHERE state = 'ready'"
ROWS = b"".join(json.dumps(make_row(number, "")).encode() + b"\n" for number in range(40))
HALF = len(ROWS) // 2


@pytest.fixture(params=["embedded", "cluster"])
def source(request) -> Installation:
    return request.getfixturevalue(request.param)


@pytest.fixture
def target(source, tmp_path):
    """A new installation with an empty database of the same kind."""
    folder = tmp_path / "restored"
    folder.mkdir()
    url = f"sqlite:///{folder}/gymweb.sqlite3"
    if source.database_url.startswith("postgres"):
        server, _, name = source.database_url.rpartition("/")
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name[:50]}_restored")
        url = f"{server}/{name[:50]}_restored"
    with contextlib.closing(Installation(folder, database_url=url, **RESERVE)) as installation:
        yield installation


def manage(installation: Installation, *words: object, fails: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *map(str, words)],
        env=installation.env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def plan(installation: Installation, rollouts: int) -> dict[str, int]:
    _, tools = installation.tools("--tool-ms", 20)
    model = installation.model("--latency-ms", 1_000)
    collection = {"faults": [""] * 50, "model": "mock", "environment": "weather"}
    return installation.plan(
        migrate=installation.database_url.startswith("sqlite"),
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools}},
        collections={"first": {**collection, "repeats": 1}, "all": {**collection, "repeats": rollouts // 50}},
        key="ada",
    )


def send_part(port: int, key: str, upload: int, part: bytes, *, offset: int) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/uploads/{upload}/parts/?offset={offset}",
        data=part,
        method="PUT",
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/octet-stream"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert reply.status == 200


def order_export(api: Api, collection: int) -> None:
    api.post("exports/", {"collection": collection, "format": "nemo_gym_rollouts"})


def download(port: int, key: str, export: int, name: str) -> bytes:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/exports/{export}/files/{name}/", headers={"Authorization": f"Bearer {key}"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return bytes(reply.read())


def test_a_backup_during_a_running_collection_restores(source: Installation, target: Installation, tmp_path, show):
    rollouts = size(200, 2_000)
    planned = plan(source, rollouts)
    key, collection = planned["key"], planned["all"]
    server, port = source.serve("--seats", size(8, 64))
    api = Api(port, key)
    source.wait_finished(planned["first"], seconds=60)
    order_export(api, planned["first"])
    wait_until(lambda: source.number(READY) == 1, 60, source.tell)
    # Of this upload, the restored installation receives the second half.
    half = api.post("datasets/first/uploads/parts/", {"filename": "more.jsonl"})["id"]
    send_part(port, key, half, ROWS[:HALF], offset=0)
    backups = tmp_path / "backups"
    for share in (0.1, 0.3):
        source.wait_ended(int(rollouts * share), collection, seconds=120)
        # This export is in progress while the backup is written.
        order_export(api, planned["first"])
        manage(source, "backup", backups)
        assert source.ended(collection) < rollouts, "the collection ended before the backup"
    assert "is complete" in manage(source, "verify_backup", backups)

    assert "Restored" in manage(target, "restore", backups)
    assert target.rows("SELECT count(*) FROM rollouts_rollout WHERE status = 'running'") == [(0,)]
    assert int(rollouts * 0.3) <= target.ended(collection) < rollouts
    paths = [Path(path) for (path,) in target.rows("SELECT path FROM exports_export WHERE state = 'ready'")]
    assert {path.parent for path in paths} == {target.folder / "exports"}
    assert "--replace" in manage(target, "restore", backups, fails=True)
    # The restored installation finishes the collection with the tools and the model of the first one.
    assert source.leave(server) == [0]
    restored, port = target.serve("--seats", 64)
    target.wait_finished(collection, planned["first"], seconds=180)
    figures = judge(target, collection)
    assert (figures["rollouts"], figures["completed"], figures["lost"]) == (rollouts, rollouts, 0)
    wait_until(
        lambda: target.number("SELECT count(*) FROM exports_export WHERE state <> 'ready'") == 0, 60, target.tell
    )
    for export, manifest in target.rows("SELECT id, CAST(manifest AS text) FROM exports_export"):
        for file in json.loads(manifest)["files"]:
            content = download(port, key, export, file["name"])
            assert hashlib.sha256(content).hexdigest() == file["sha256"]
            assert content.count(b"\n") == file["rows"] == 50
    send_part(port, key, half, ROWS[HALF:], offset=HALF)
    Api(port, key).post(f"uploads/{half}/finish/", {})
    loaded = f"SELECT accepted FROM tasks_upload WHERE id = {half} AND state = 'ready'"
    wait_until(lambda: target.rows(loaded) == [(40,)], 30, target.tell)
    assert "Stop all processes" in manage(target, "restore", backups, "--replace", fails=True)
    assert target.leave(restored) == [0]
    assert "Restored" in manage(target, "restore", backups, "--replace")
    assert target.ended(collection) < rollouts
    assert not list(target.folder.glob("*.restoring")) + list(target.folder.glob("*.replaced"))
    show(**figures)


def test_the_secret_key_is_restored_if_the_backup_has_it(source: Installation, target: Installation, tmp_path: Path):
    if source.database_url.startswith("sqlite"):
        source.plan(migrate=True)
    source.plan(key="ada")
    backups = tmp_path / "backups"
    manage(source, "backup", backups)
    assert "Set GYMWEB_SECRET_KEY" in manage(target, "restore", backups)
    keys = [installation.folder / "secret_key" for installation in (source, target)]
    assert keys[0].read_text() != keys[1].read_text()
    manage(source, "backup", backups, "--with-secret-key")
    assert "GYMWEB_SECRET_KEY" not in manage(target, "restore", backups, "--replace")
    assert keys[0].read_text() == keys[1].read_text()
    assert target.rows("SELECT username FROM accounts_user") == [("ada",)]
