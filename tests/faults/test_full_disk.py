"""A full disk: GymWeb says so, stores what it can, waits, and goes on by itself when there is space again."""

import contextlib
import gzip
import json
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.servers import Postgres, ServerMissing, postgres
from tests.faults.installation import LEASE, Installation, size, wait_until
from tests.faults.judging import judge

pytestmark = pytest.mark.slow

MB = 1024**2
SEATS = 32
MakeDisk = Callable[[int], Path]


@pytest.fixture
def make_disk() -> Iterator[MakeDisk]:
    """Mount a small file system of so many bytes; all of them are unmounted when the test ends."""
    mounted: list[Path] = []

    def mount(bytes_: int) -> Path:
        # Not below pytest's own folder, which the user of PostgreSQL cannot enter.
        folder = Path(tempfile.mkdtemp(prefix="gymweb-small-disk-"))
        command = ["mount", "-t", "tmpfs", "-o", f"size={bytes_}", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            folder.rmdir()
            pytest.skip("no small disk: mounting one needs root and the right to mount")
        mounted.append(folder)
        folder.chmod(0o755)
        return folder

    try:
        yield mount
    finally:
        for folder in mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
            folder.rmdir()


def fill(path: Path) -> None:
    """Write zeros until the disk is full. A later call takes what was freed since."""
    with path.open("ab", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(b"\0" * 65536)


def reference_work(installation: Installation, rollouts: int, **wanted: Any) -> dict[str, Any]:
    """Plan one collection, and one more that a person pauses before anything of it runs."""
    _, tools = installation.tools()
    model = installation.model("--latency-ms", 300)
    plan = {"faults": [""] * 50, "model": "mock", "environment": "weather"}
    return installation.plan(
        migrate=True,
        models={"mock": {"base_url": model}},
        environments={"weather": {"base_url": tools}},
        collections={"all": {**plan, "repeats": rollouts // 50}, "paused": {**plan, "repeats": 1}},
        key="ada",
        **wanted,
    )


def rows(count: int, text_bytes: int = 1000) -> bytes:
    """A gzipped file of tasks, each of which takes about `text_bytes` in the database."""
    lines = []
    for number in range(count):
        prompt = [{"role": "user", "content": f"{number} " + "word " * (text_bytes // 5)}]
        lines.append(json.dumps({"id": f"task-{number}", "responses_create_params": {"input": prompt}}))
    return gzip.compress("\n".join(lines).encode(), 1)


class Api:
    """A client of one web process. Every request has one answer: a connection that breaks fails the test."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        given = {"Authorization": f"Bearer {self._key}", "Content-Type": kind, **headers}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}", data=data, headers=given, method=method
        )
        try:
            reply = urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as refused:
            reply = refused
        with reply:
            text = reply.read().decode()
        is_json = "json" in reply.headers.get("Content-Type", "")
        return reply.status, json.loads(text) if is_json and text else text

    def ready(self) -> tuple[int, list[str]]:
        status, said = self("GET", "/readyz")
        return status, sorted(said["missing"])

    def state_of(self, upload: int) -> str:
        status, said = self("GET", f"/api/v1/uploads/{upload}/")
        assert status == 200, said
        return str(said["state"])


UPLOADS = "/api/v1/datasets/all/uploads/?mode=upsert"


def go_through_it(
    installation: Installation,
    *,
    disk: Path,
    tasks: int,
    rollouts: int,
    show: Callable[..., None],
    repair: Callable[[], object],
) -> None:
    """Fill the disk under a running collection and an upload, look at everything, free it, and wait for both."""
    planned = reference_work(installation, rollouts)
    # The worker is the server's own.
    server, port = installation.serve("--seats", SEATS)
    api = Api(port, planned["key"])
    mine, paused = (f"/api/v1/collections/{planned[name]}/" for name in ("all", "paused"))
    assert api("POST", f"{paused}pause/")[0] == 200
    left = api("GET", paused)[1]["completed"]
    assert api.ready() == (200, [])
    installation.wait_ended(rollouts // 10, planned["all"], seconds=60)
    big = rows(tasks)
    status, said = api("POST", UPLOADS, big)
    assert status == 202, said
    first = said["id"]
    wait_until(lambda: api("GET", f"/api/v1/uploads/{first}/")[1]["accepted"] > 0, 60, installation.tell)
    filler = disk / "filler"

    def is_full() -> bool:
        # Fill it again each time: the upload is rolled back, SQLite's log shrinks, and the disk has space again.
        fill(filler)
        status, missing = api.ready()
        assert status == (503 if missing else 200), missing
        return "disk" in missing

    wait_until(is_full, 30, installation.tell)
    if repair is nothing:
        wait_until(lambda: "waits for disk space" in server.said, 60, installation.tell)
    seen = []
    until = time.monotonic() + size(6, 30)
    while time.monotonic() < until:
        wait_until(is_full, 30, installation.tell)
        writes = [
            api("PATCH", "/api/v1/datasets/all/", {"name": "Other"}),
            api("POST", UPLOADS, b'{"responses_create_params": {"input": "Hi"}}'),
            api("POST", UPLOADS, os.urandom(MB)),
            api("POST", f"{mine}retry/", {}),
        ]
        for status, said in writes:
            assert (status, said["type"]) == (507, "urn:gymweb:problem:disk-full"), (said, installation.tell())
            assert "disk" in said["detail"]
        seen.append([api("GET", path)[0] for path in ("/api/v1/collections/", mine, "/api/v1/uploads/")])
        time.sleep(0.5)
    status, said = api("GET", mine)
    if status == 200:
        assert said["state"] == "running"
        assert any("disk" in hold for hold in said["held_back_by"]), said["held_back_by"]
    stored = installation.ended(planned["all"]) if status == 200 else None
    assert server.exit_code is None
    assert stored is None or stored < rollouts, "the collection ended before the disk was full"

    filler.unlink()
    repair()
    took = wait_until(lambda: api.ready() == (200, []), 60, installation.tell)
    status, said = api("POST", UPLOADS, rows(10))
    assert status == 202, said
    for upload in (first, said["id"]):
        wait_until(lambda upload=upload: api.state_of(upload) == "ready", size(90, 180), installation.tell)
    installation.wait_finished(planned["all"], seconds=size(90, 180))
    status, said = api("GET", "/api/v1/datasets/all/")
    assert said["latest_version"]["task_count"] == 50 + tasks, "the small file has ids that the large one has too"
    figures = judge(installation, planned["all"])
    assert figures["completed"] == rollouts
    status, said = api("GET", paused)
    assert (said["state"], said["completed"]) == ("paused", left), "a person's pause was undone"
    assert installation.leave(server) == [0]
    show(**figures, stored_when_full=stored, ready_again_s=round(took, 1), reads_when_full=seen[-1])
    if repair is nothing:
        assert all(one == [200, 200, 200] for one in seen), seen


def nothing() -> None:
    """SQLite has no server that would have to be started again."""


def test_sqlite_on_a_disk_that_fills_up_and_is_freed(tmp_path: Path, make_disk: MakeDisk, show) -> None:
    disk = make_disk(60 * MB)
    var = disk / "var"
    url = f"sqlite:///{var}/gymweb.sqlite3"
    with contextlib.closing(Installation(tmp_path, database_url=url)) as installation:
        installation.env["GYMWEB_VAR"] = str(var)
        go_through_it(installation, disk=disk, tasks=8_000, rollouts=400, show=show, repair=nothing)


def test_a_small_file_that_unpacks_to_more_than_the_disk_waits_and_can_be_cancelled(
    tmp_path: Path, make_disk: MakeDisk, show
) -> None:
    var = make_disk(60 * MB) / "var"
    with contextlib.closing(Installation(tmp_path, database_url=f"sqlite:///{var}/gymweb.sqlite3")) as installation:
        installation.env["GYMWEB_VAR"] = str(var)
        planned = reference_work(installation, 50)
        server, port = installation.serve("--seats", SEATS)
        api = Api(port, planned["key"])
        large = rows(2_500, 40_000)
        status, said = api("POST", UPLOADS, large)
        assert status == 202, said
        upload = f"/api/v1/uploads/{said['id']}/"
        waits = lambda: api("GET", upload)[1]["message"].startswith("Waiting for disk space. It needs about")  # noqa: E731
        wait_until(waits, size(60, 120), installation.tell)
        # What was loaded of it is deleted, and SQLite uses the space again: everything else goes on meanwhile.
        installation.wait_finished(planned["all"], seconds=60)
        # SQLite's log becomes shorter only when no connection reads it any more.
        small: list[Any] = []
        wait_until(lambda: small.append(api("POST", UPLOADS, rows(10))) or small[-1][0] == 202, 60, installation.tell)
        wait_until(lambda: api.state_of(small[-1][1]["id"]) == "ready", 60, installation.tell)
        status, told = api("GET", upload)
        assert (told["state"], told["version"]) == ("queued", None)
        waited = server.said.count(f"upload {said['id']} waits for disk space")
        assert waited == 1, "it tried again without the space that it needs"
        assert api("DELETE", upload)[0] == 204
        assert api("GET", upload)[0] == 404
        assert installation.leave(server) == [0]
    show(packed_mb=round(len(large) / MB, 2), message=told["message"])


@pytest.fixture
def full_postgres(make_disk: MakeDisk) -> Iterator[tuple[Postgres, Path]]:
    """PostgreSQL with its data and its log of writes on a disk of 400 MB."""
    disk = make_disk(400 * MB)
    options = ["-c", "max_wal_size=64MB", "-c", "min_wal_size=32MB"]
    try:
        with postgres(parent=disk, options=options) as server:
            yield server, disk
    except ServerMissing as missing:
        pytest.skip(str(missing))


def test_postgres_on_a_disk_that_fills_up_and_is_freed(
    tmp_path: Path, full_postgres: tuple[Postgres, Path], show
) -> None:
    server, disk = full_postgres
    with contextlib.closing(Installation(tmp_path, database_url=server.url)) as installation:
        # A server that could not write its log has ended: its supervisor would start it again.
        repair = server.start_again
        go_through_it(
            installation, disk=disk, tasks=size(8_000, 12_000), rollouts=size(400, 1_000), show=show, repair=repair
        )


def test_no_finished_rollout_is_lost_or_run_again_though_the_disk_is_full(
    tmp_path: Path, make_disk: MakeDisk, show
) -> None:
    rollouts, seats = size(400, 1_500), 64
    disk = make_disk(48 * MB)
    url = f"sqlite:///{disk}/gymweb.sqlite3"
    filler = disk / "filler"
    with contextlib.closing(Installation(tmp_path, database_url=url)) as installation:
        collection = reference_work(installation, rollouts)["all"]
        worker = installation.worker(seats)
        installation.wait_ended(rollouts // 4, collection, seconds=60)
        fill(filler)
        running = "SELECT count(*) FROM rollouts_rollout WHERE status = 'running'"
        # Results are refused, or the reserve took the last of them and no more rollouts are claimed.
        is_full = lambda: "The database fails (" in worker.said or installation.number(running) == 0  # noqa: E731
        wait_until(is_full, 30, installation.tell)
        time.sleep(1.5 * LEASE)
        stored = installation.ended(collection)
        unstored = installation.number(running)
        assert worker.exit_code is None
        # What had ended and waited for its batch when the disk filled up, and what ended of the seats taken then.
        assert unstored <= 2 * seats
        filler.unlink()
        installation.wait_finished(collection, seconds=60)
        figures = judge(installation, collection)
        assert (figures["completed"], figures["again"], figures["lost"]) == (rollouts, 0, 0)
        assert stored < rollouts
        assert installation.leave(worker) == [0]
    show(**figures, stored_when_full=stored, unstored=unstored)
