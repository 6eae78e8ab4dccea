"""Measure uploads on a real server: loading speed, a million rows beside a collection, and hostile files.

`python -m scripts.measure_uploads speed` loads 2 KB rows into a new SQLite database, once new and once unchanged. `…
rows [--rows 1000000] [--on sqlite postgres]` sends them in parts to a server that runs a collection meanwhile. `…
hostile` sends bombs, endless lines and broken encodings, and shows how each is rejected. One JSON object per
measurement; memory is that of the server and its children. The exit status is 1 if memory grew by 150 MB or more, if
fewer than 5,000 rows per second were loaded alone, or if the worker lost its lease.
"""

import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scripts.hostile_uploads import GOOD, hostile_files
from scripts.measured_server import Api, Memory, prepare, row
from scripts.measuring import (
    ALLOWED_GROWTH_MB,
    MB,
    end_servers_when_stopped,
    in_own_process,
    is_busy,
    machine_load,
    parse_sizes,
    say,
)
from scripts.servers import own_settings, postgres
from tests.gymweb.serving import Served, serving

PART_BYTES = 8 * MB
ASKED_ROWS_PER_SECOND = 5_000


def parts(rows: int) -> Iterator[bytes]:
    """Yield a file of `rows` rows in parts of 8 MB."""
    held = bytearray()
    for number in range(rows):
        held += row(number)
        if len(held) >= PART_BYTES:
            yield bytes(held[:PART_BYTES])
            del held[:PART_BYTES]
    if held:
        yield bytes(held)


# -- speed -----------------------------------------------------------------------------------------------------------


class _Parts(io.RawIOBase):
    """A stream of these parts."""

    def __init__(self, content: list[bytes]) -> None:
        self._parts, self._held = iter(content), b""

    def read(self, size: int = -1, /) -> bytes:
        self._held = self._held or next(self._parts, b"")
        block, self._held = self._held[:size], self._held[size:]
        return block


def measure_speed(rows: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="gymweb-uploads-") as var:
        prepare(Path(var))
        os.environ |= own_settings(Path(var))
        return in_own_process(_load_twice, rows)


def _load_twice(rows: int) -> bool:
    import django

    django.setup()
    from apps.tasks.models import Dataset
    from apps.tasks.upload_jobs import upload_file

    dataset = Dataset.objects.get(slug="measured")
    content = list(parts(rows))
    within = True
    for name in ("new", "unchanged"):
        began, cpu = time.monotonic(), time.process_time()
        upload = upload_file(dataset=dataset, stream=_Parts(content), filename="rows.jsonl")
        seconds, used = time.monotonic() - began, time.process_time() - cpu
        by_cpu = is_busy()
        enough = rows / (used if by_cpu else seconds) >= ASKED_ROWS_PER_SECOND
        say("upload.speed", on="sqlite", rows=name, count=upload.accepted, rows_per_s=round(rows / seconds),
            rows_per_cpu_s=round(rows / used), judged_by="cpu" if by_cpu else "clock", within=enough)  # fmt: skip
        within = within and enough
    return within


# -- a million rows beside a collection ------------------------------------------------------------------------------


def measure_rows(rows: int, database: str, name: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="gymweb-uploads-") as folder:
        var = Path(folder)
        key = prepare(var, database)
        named = {"GYMWEB_DATABASE_URL": database} if database else {}
        settings = own_settings(var, GYMWEB_WORKER_LEASE_SECONDS="30", **named)
        with serving(var, "--seats", "64", **settings) as served:
            api = Api(served, key)
            worker = _await(lambda: _live_worker(api), "no worker came up")
            _collect(api, rows)
            _await(lambda: _completed(api)["completed"], "no rollout was completed")
            with Memory(served) as memory:
                upload, sent = _send(api, rows)
                state = api.wait(upload, {"queued", "loading"})[-1]
            finished, kept = _completed(api), _live_worker(api) == worker
            within = (
                memory.growth_mb < ALLOWED_GROWTH_MB
                and kept
                and state["accepted"] == rows
                and bool(finished["completed"])
            )
            say(
                "upload.rows", on=name, rows=state["accepted"], state=state["state"],
                sent_s=round(sent, 1), loaded_s=round(memory.seconds - sent, 1),
                rows_per_s=round(rows / (memory.seconds - sent)), growth_mb=memory.growth_mb,
                rollouts_meanwhile=finished["completed"], rollouts_failed=finished["failed"],
                worker_kept_its_lease=kept, within=within,
                load=machine_load(),
            )  # fmt: skip
            return within


def _await(look: Callable[[], int], problem: str) -> int:
    """What there is to be seen, as soon as there is something."""
    for _ in range(1_200):
        if found := look():
            return found
        time.sleep(0.1)
    raise SystemExit(f"{problem} within two minutes")


def _live_worker(api: Api) -> int:
    """Its id, or 0."""
    _, found = api.call("GET", "workers/")
    return next((int(worker["id"]) for worker in found["results"] if worker["state"] == "active"), 0)


def _collect(api: Api, rows: int) -> None:
    """Plan enough rollouts to last while the rows are loaded: several of each of 1,000 tasks."""
    repeats = max(10, rows // 2_500)
    plan = {"dataset": "running", "agent": "default", "policy_model": "scripted", "repeats": repeats, "name": "Beside"}
    status, told = api.call("POST", "collections/", plan)
    assert status == 201, told


def _completed(api: Api) -> dict[str, int]:
    _, found = api.call("GET", "collections/")
    names = ("completed", "failed")
    return {name: sum(one[name] for one in found["results"]) for name in names}


def _send(api: Api, rows: int) -> tuple[str, float]:
    began = time.monotonic()
    status, upload = api.call("POST", "datasets/measured/uploads/parts/", {"filename": "rows.jsonl"})
    assert status == 201, upload
    address, offset = f"uploads/{upload['id']}/", 0
    for part in parts(rows):
        status, told = api.call("PUT", f"{address}parts/?offset={offset}", part, "application/octet-stream")
        assert status == 200, told
        offset = told["received_bytes"]
    status, told = api.call("POST", f"{address}finish/")
    assert status == 202, told
    return address, time.monotonic() - began


# -- files made to hurt ----------------------------------------------------------------------------------------------


def send_hostile(api: Api, served: Served, name: str, body: Any) -> dict[str, Any]:
    """Return the server's response to a hostile file, and its cost."""
    kind = "text/csv" if "CSV" in name else "application/octet-stream"
    filename = "rows.csv" if "CSV" in name else "rows.json" if "array" in name else "rows"
    with Memory(served) as memory:
        status, told = api.call("POST", f"datasets/measured/uploads/?wait=true&filename={filename}", body, kind)
    first = (told.get("errors") or [{}])[0]
    return {
        "file": name,
        "status": status,
        "limit": told.get("limit", ""),
        "code": first.get("code", ""),
        "message": str(first.get("message") or told.get("detail"))[:120],
        "growth_mb": memory.growth_mb,
        "seconds": round(memory.seconds, 2),
    }


def measure_hostile(scale: float) -> bool:
    with tempfile.TemporaryDirectory(prefix="gymweb-uploads-") as folder:
        key = prepare(Path(folder))
        with serving(Path(folder), **own_settings(Path(folder))) as served:
            api = Api(served, key)
            api.call("POST", "datasets/measured/uploads/?wait=true", GOOD, "application/x-ndjson")
            most, refused = 0.0, True
            for name, body in hostile_files(scale):
                seen = send_hostile(api, served, name, body)
                most, refused = max(most, seen["growth_mb"]), refused and seen["status"] in {400, 413}
                say("upload.hostile", **seen)
            within = most < ALLOWED_GROWTH_MB and refused
            say("upload.hostile.most", growth_mb=most, all_refused=refused, within=within)
            return within


def main() -> None:
    parser = parse_sizes(__doc__, rows=0)
    parser.add_argument("what", choices=["speed", "rows", "hostile"])
    parser.add_argument("--on", nargs="*", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])
    parser.add_argument("--scale", type=float, default=1.0, help="of the hostile files")
    options = parser.parse_args()
    end_servers_when_stopped()
    if options.what == "speed":
        sys.exit(not measure_speed(options.rows or 50_000))
    if options.what == "hostile":
        sys.exit(not measure_hostile(options.scale))
    rows, within = options.rows or 1_000_000, []
    if "sqlite" in options.on:
        within.append(measure_rows(rows, "", "sqlite"))
    if "postgres" in options.on:
        with postgres() as server:
            within.append(measure_rows(rows, server.url, "postgres"))
    sys.exit(not all(within))


if __name__ == "__main__":
    main()
