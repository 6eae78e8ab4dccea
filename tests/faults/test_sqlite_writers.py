"""Exports on SQLite beside a running collection and an upload, all in the single process of the default."""

import json
import time
from typing import Any

import pytest

from tests.faults.installation import HERE, Api, Installation, Program, free_port, size, wait_until
from tests.faults.plan import make_row

pytestmark = pytest.mark.slow

ENDED = "('ready', 'failed', 'cancelled')"
SEATS = 32


def test_every_export_is_written_while_rollouts_and_an_upload_are_stored(embedded: Installation, show) -> None:
    exports, rollouts, lines = size(10, 50), size(200, 5_000), size(2_000, 20_000)
    _, tools = embedded.tools()
    of_stored = {"faults": [""] * 50, "model": "fast", "environment": "weather", "repeats": rollouts // 50}
    of_running = {"faults": [""] * 100, "model": "slow", "environment": "weather", "repeats": 200}
    planned: dict[str, Any] = embedded.plan(
        migrate=True,
        models={
            "fast": {"base_url": embedded.model()},
            "slow": {"base_url": embedded.model("--latency-ms", 300, "--jitter-ms", 100)},
        },
        environments={"weather": {"base_url": tools}},
        collections={"stored": of_stored, "running": {**of_running, "priority": 1}},
        key="engineer",
    )
    port = free_port()
    server = embedded.start("serve", HERE / "eager_serve.py", "--port", port, "--seats", SEATS)
    embedded.wait_port(server, port)
    embedded.wait_finished(planned["stored"], seconds=300)
    # At the start, all rollouts of a collection end at about the same time.
    embedded.wait_ended(2 * SEATS, planned["running"], seconds=60)
    api = Api(port, planned["key"])
    ended_before, began = embedded.ended(planned["running"]), time.monotonic()
    for number in range(exports):
        format = ("trl_sft", "nemo_gym_rollouts")[number % 2]
        api.post("exports/", {"format": format, "collection": planned["stored"]})
    uploads = upload_until_exported(embedded, api, exports, lines)
    seconds = time.monotonic() - began

    written = embedded.rows("SELECT state, message, considered FROM exports_export ORDER BY id")
    assert written == [("ready", "", rollouts)] * exports, server.said[-3000:]
    assert {row[0] for row in embedded.rows("SELECT state FROM tasks_upload")} <= {"ready", "loading", "queued"}
    beside = embedded.ended(planned["running"]) - ended_before
    assert beside > 0, "the collection ran meanwhile"
    assert troubles(server) == [], "no job met a locked database, and none needed to be retried"
    assert embedded.leave(server) == [0]
    show(
        exports=exports,
        failed=0,
        rollouts_each=rollouts,
        uploads_beside=uploads,
        rollouts_beside=beside,
        seconds=round(seconds, 1),
    )


def upload_until_exported(embedded: Installation, api: Api, exports: int, lines: int) -> int:
    """Send one file after the other until all exports have ended; return how many files were sent."""
    files = 0

    def is_over() -> bool:
        nonlocal files
        if embedded.number("SELECT count(*) FROM tasks_upload WHERE state IN ('queued', 'loading')") == 0:
            rows = (json.dumps({**make_row(number, ""), "file": files}) for number in range(lines))
            api.post("datasets/running/uploads/", "\n".join(rows).encode(), "application/x-ndjson")
            files += 1
        time.sleep(0.2)
        return embedded.number(f"SELECT count(*) FROM exports_export WHERE state IN {ENDED}") == exports

    wait_until(is_over, size(120, 900), embedded.tell)
    return files


def troubles(server: Program) -> list[str]:
    signs = ("database is locked", "is retried at", "failed", "Traceback")
    return [line for line in server.said.splitlines() if any(sign in line for sign in signs)]
