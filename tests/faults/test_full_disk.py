"""A disk that is full: the worker keeps what is finished, claims nothing more, and goes on when there is room."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.installation import LEASE, Installation, size, wait_until
from tests.faults.judging import judge

pytestmark = pytest.mark.slow

DISK = 48 * 1024**2
SEATS = 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no small disk: mounting one needs root and the right to mount")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(b"\0" * 65536)


def test_no_finished_rollout_is_lost_or_run_again_though_the_disk_is_full(
    tmp_path: Path, small_disk: Path, show
) -> None:
    rollouts = size(400, 1_500)
    url = f"sqlite:///{small_disk}/gymweb.sqlite3"
    filler = small_disk / "filler"
    with contextlib.closing(Installation(tmp_path, database_url=url)) as installation:
        _, tools = installation.tools()
        model = installation.model("--latency-ms", 100)
        collection = installation.plan(
            migrate=True,
            models={"mock": {"base_url": model}},
            environments={"weather": {"base_url": tools}},
            collections={
                "all": {"faults": [""] * 100, "model": "mock", "environment": "weather", "repeats": rollouts // 100}
            },
        )["all"]
        worker = installation.worker(SEATS)
        installation.wait_ended(rollouts // 4, collection, seconds=60)
        fill(filler)
        wait_until(lambda: "The database fails (" in worker.said, 30, installation.tell)
        time.sleep(1.5 * LEASE)
        stored = installation.ended(collection)
        unstored = installation.number("SELECT count(*) FROM rollouts_rollout WHERE status = 'running'")
        assert worker.exit_code is None
        # What had ended and waited for its batch when the disk filled up, and what ended of the seats taken then.
        assert unstored <= 2 * SEATS
        filler.unlink()
        installation.wait_finished(collection, seconds=60)
        figures = judge(installation, collection)
        assert (figures["completed"], figures["again"], figures["lost"]) == (rollouts, 0, 0)
        assert stored < rollouts
        assert installation.leave(worker) == [0]
    show(**figures, stored_when_full=stored, unstored=unstored)
