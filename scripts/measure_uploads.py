"""What uploads cost a real server: the speed of loading, a million rows beside a collection, and files made to hurt.

`python scripts/measure_uploads.py speed` loads 2 KB rows into a new SQLite database, once new and once unchanged.
`… rows [--rows 1000000] [--on sqlite postgres]` sends them in parts to a server that runs a collection meanwhile.
`… hostile` sends bombs, endless lines and broken encodings, and shows how each is refused.
Every measurement is one JSON object a line; memory is that of the server with all its children. The exit status is 1
where memory grew by 150 MB or more, fewer than 5,000 rows a second were loaded alone, or the worker lost its lease.
"""

import argparse
import contextlib
import gzip
import http.client
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.gymweb.serving import Served, serving  # noqa: E402 - found by the line above

MB = 1024**2
PART_BYTES = 8 * MB
PAGE = os.sysconf("SC_PAGESIZE")
ALLOWED_GROWTH_MB = 150
ASKED_ROWS_PER_SECOND = 5_000


def row(number: int) -> bytes:
    """One task of 2 KB, unlike every other."""
    text = f"Question {number}: " + "word " * 372
    params = {"input": [{"role": "user", "content": text}]}
    task = {"id": f"task-{number}", "responses_create_params": params, "expected_answer": str(number)}
    return json.dumps(task).encode() + b"\n"


def parts(rows: int) -> Iterator[bytes]:
    """The file of so many rows in parts of 8 MB."""
    held = bytearray()
    for number in range(rows):
        held += row(number)
        if len(held) >= PART_BYTES:
            yield bytes(held[:PART_BYTES])
            del held[:PART_BYTES]
    if held:
        yield bytes(held)


class Memory:
    """The most that a process and its children held at once since it began."""

    def __init__(self, served: Served) -> None:
        self._pid, self._over = served.process.pid, threading.Event()
        self._before = self.most = _tree_rss(self._pid)
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, _tree_rss(self._pid))

    @property
    def growth_mb(self) -> float:
        return round((self.most - self._before) / MB, 1)


def _tree_rss(pid: int) -> int:
    total = 0
    for one in [pid, *_children(pid)]:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * PAGE
    return total


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_children(child)]
    return found


def prepare(var: Path, database: str = "") -> str:
    """A database with datasets to upload into and a collection's makings; the key of a person who may."""
    os.environ.update({"GYMWEB_VAR": str(var), "DJANGO_SETTINGS_MODULE": "gymweb.settings"})
    # Never the database that somebody's environment names.
    os.environ["GYMWEB_DATABASE_URL"] = database or f"sqlite:///{var}/gymweb.sqlite3"
    script = """
from apps.accounts.keys import create_api_key
from apps.accounts.models import Role, User
from apps.environments.models import Environment
from apps.policies.models import PolicyModel, Provider
from apps.tasks.uploading import create_dataset, upload_file
import io, json
user = User.objects.create_user(username="measure", role=Role.ENGINEER)
environment = Environment.objects.get(slug="calculator")
create_dataset(slug="measured", name="Measured", environment=environment)
running = create_dataset(slug="running", name="Running", environment=environment)
rows = [{"responses_create_params": {"input": f"What is {n} + 2?"}, "expected_answer": str(n + 2)} for n in range(1000)]
upload_file(dataset=running, stream=io.BytesIO("\\n".join(map(json.dumps, rows)).encode()), filename="a.jsonl")
PolicyModel.objects.get_or_create(slug="scripted", defaults={"name": "Scripted", "provider": Provider.SCRIPTED})
print("KEY", create_api_key(user=user, name="measure", scopes=["admin"])[1])
"""
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
    told = subprocess.check_output([sys.executable, "manage.py", "shell", "-v", "0", "-c", script], cwd=ROOT, text=True)
    return told.split("KEY ")[1].strip()


class Api:
    """The server's API, with a key."""

    def __init__(self, served: Served, key: str) -> None:
        self._port, self._headers = served.port, {"Authorization": f"Bearer {key}", "Host": "localhost"}

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Status and JSON. A body that is no bytes is sent in chunks, or as JSON where it is a dict."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=900)
        headers = {**self._headers, "Content-Type": content_type}
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                chunked = body is not None and not isinstance(body, bytes)
                connection.request(method, f"/api/v1/{path}", body, headers, encode_chunked=chunked)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"{}")
        finally:
            connection.close()


# -- speed -----------------------------------------------------------------------------------------------------------


class _Rows(io.RawIOBase):
    """A stream of 2 KB rows, made as it is read."""

    def __init__(self, rows: int) -> None:
        self._parts, self._held = parts(rows), b""

    def read(self, size: int = -1, /) -> bytes:
        self._held = self._held or next(self._parts, b"")
        block, self._held = self._held[:size], self._held[size:]
        return block


def measure_speed(rows: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="gymweb-uploads-") as var:
        prepare(Path(var))
        import django

        django.setup()
        from apps.tasks.models import Dataset
        from apps.tasks.uploading import upload_file

        dataset = Dataset.objects.get(slug="measured")
        content = list(parts(rows))
        within = True
        for name in ("new", "unchanged"):
            began, cpu = time.monotonic(), time.process_time()
            upload = upload_file(dataset=dataset, stream=_Parts(content), filename="rows.jsonl")
            seconds, used = time.monotonic() - began, time.process_time() - cpu
            # Where the machine has more to do than it has cores, the clock tells of the neighbours.
            is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
            enough = rows / (used if is_busy else seconds) >= ASKED_ROWS_PER_SECOND
            say("upload.speed", on="sqlite", rows=name, count=upload.accepted, rows_per_s=round(rows / seconds),
                rows_per_cpu_s=round(rows / used), judged_by="cpu" if is_busy else "clock", within=enough)  # fmt: skip
            within = within and enough
        return within


class _Parts(_Rows):
    def __init__(self, content: Iterable[bytes]) -> None:
        self._parts, self._held = iter(content), b""


# -- a million rows beside a collection ------------------------------------------------------------------------------


def measure_rows(rows: int, database: str, name: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="gymweb-uploads-") as folder:
        var = Path(folder)
        key = prepare(var, database)
        settings = {"DJANGO_SETTINGS_MODULE": "gymweb.settings", "GYMWEB_WORKER_LEASE_SECONDS": "30"}
        if database:
            settings["GYMWEB_DATABASE_URL"] = database
        with serving(var, "--seats", "64", **settings) as served:
            api = Api(served, key)
            worker = _live_worker(api)
            _collect(api)
            time.sleep(5)  # until the worker is warm
            with Memory(served) as memory:
                upload, sent = _send(api, rows)
                state = _wait(api, upload)
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
                load=round(os.getloadavg()[0], 1),
            )  # fmt: skip
            return within


def _live_worker(api: Api) -> int:
    for _ in range(100):
        _, found = api.call("GET", "workers/")
        live = [worker["id"] for worker in found["results"] if worker["state"] == "active"]
        if live:
            return int(live[0])
        time.sleep(0.1)
    raise SystemExit("no worker came up")


def _collect(api: Api) -> None:
    """Enough rollouts to last: 1,000 tasks, hundreds of times."""
    plan = {"dataset": "running", "agent": "default", "policy_model": "scripted", "repeats": 400, "name": "Beside"}
    status, told = api.call("POST", "collections/", plan)
    assert status == 201, told


def _completed(api: Api) -> dict[str, int]:
    _, found = api.call("GET", "collections/")
    names = ("completed", "failed")
    return {name: sum(_count(one, name) for one in found["results"]) for name in names}


def _count(collection: dict[str, Any], name: str) -> int:
    return int(collection.get(name) or collection.get("counts", {}).get(name) or 0)


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


def _wait(api: Api, address: str) -> dict[str, Any]:
    while True:
        _, state = api.call("GET", address)
        if state["state"] not in {"queued", "loading"}:
            return dict(state)
        time.sleep(0.5)


# -- files made to hurt ----------------------------------------------------------------------------------------------

GOOD = b'{"responses_create_params": {"input": "hi"}, "expected_answer": "1"}\n'


def _with(value: bytes) -> bytes:
    return GOOD + b'{"responses_create_params": {"input": "hi"}, "x": ' + value + b"}\n"


def _packed(module: Any, size: int) -> bytes:
    """So many bytes of one long text in a few."""
    file = io.BytesIO()
    with module.open(file, "wb") as packed:
        packed.write(b'{"responses_create_params": {"input": "')
        for _ in range(size // MB):
            packed.write(b"a" * MB)
        packed.write(b'"}}\n')
    return file.getvalue()


def _bomb_of_rows(size: int) -> bytes:
    file = io.BytesIO()
    with gzip.open(file, "wb") as packed:
        for _ in range(size // MB):
            packed.write(row(0) * (MB // len(row(0))))
    return file.getvalue()


def _parquet(rows: int, size: int) -> bytes:
    """One row group of one page of `rows` texts of `size` characters that hardly compress to nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = "".join(chr(33 + number * 7 % 90) for number in range(size))
    file = io.BytesIO()
    options: dict[str, Any] = {"use_dictionary": False, "data_page_size": 2**31 - 1, "write_batch_size": 10**9}
    pq.write_table(pa.table({"prompt": [text] * rows}), file, compression="zstd", row_group_size=rows, **options)
    return file.getvalue()


def hostile_files(scale: float = 1.0) -> Iterator[tuple[str, Any]]:
    """Names and bodies; at scale 1 a line of 1 GB and what unpacks to gigabytes."""
    import zstandard

    gigabyte = int(1024 * MB * scale) // MB * MB
    yield "gzip bomb", _packed(gzip, 2 * gigabyte)
    yield "gzip bomb of good rows", _bomb_of_rows(gigabyte)
    yield "zstd bomb", _packed(zstandard, 2 * gigabyte)
    yield "1 GB line", itertools.chain([b'{"x": "'], itertools.repeat(b"x" * MB, gigabyte // MB), [b'"}\n'])
    yield (
        "1 GB quote in CSV",
        itertools.chain([b'a,b\n1,"'], itertools.repeat((b"x" * 1023 + b"\n") * 1024, gigabyte // MB)),
    )
    yield "1 GB array element", itertools.chain([b"[["], itertools.repeat(b"[1]," * (MB // 4), gigabyte // MB))
    yield "100,000 deep", _with(b"[" * 100_000 + b"]" * 100_000)
    yield "100,000 deep array", b"[" * 100_000 + b"]" * 100_000
    yield "zero bytes", GOOD + b"\x00" * 1000
    yield "zero byte in a text", _with(b'"a\x00b"')
    yield "UTF-16", GOOD.decode().encode("utf-16")
    yield "Latin-1", _with('"é"'.encode("latin-1"))
    yield "Parquet, one huge page", _parquet(600, 10**6)
    yield "Parquet, cut off", b"PAR1" + b"\x00" * 5000
    yield "name twice", _with(b'{"a": 1, "a": 2}')
    yield "NaN", _with(b"NaN")
    yield "Infinity", _with(b"-Infinity")
    yield "10^400", _with(b"1" + b"0" * 400)
    yield "1e400", _with(b"1e400")
    yield "half a surrogate pair", _with(b'"\\ud800"')
    yield "bad rows", itertools.repeat(b"nonsense\n" * 1000, int(1000 * scale))


def send_hostile(api: Api, served: Served, name: str, body: Any) -> dict[str, Any]:
    """How the server answered, and what that cost it."""
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
        with serving(Path(folder), DJANGO_SETTINGS_MODULE="gymweb.settings") as served:
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


def say(measured: str, **figures: Any) -> None:
    print(json.dumps({"measured": measured, **figures}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "rows", "hostile"])
    parser.add_argument("--rows", type=int, default=0, help="default: 1,000,000; 50,000 for the speed")
    parser.add_argument("--on", nargs="*", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])
    parser.add_argument("--scale", type=float, default=1.0, help="of the hostile files")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end as well
    within = []
    if options.what == "speed":
        within.append(measure_speed(options.rows or 50_000))
    elif options.what == "hostile":
        within.append(measure_hostile(options.scale))
    else:
        from scripts.servers import postgres

        if "sqlite" in options.on:
            within.append(measure_rows(options.rows or 1_000_000, "", "sqlite"))
        if "postgres" in options.on:
            with postgres() as server:
                within.append(measure_rows(options.rows or 1_000_000, server.create_database("uploads"), "postgres"))
    sys.exit(not all(within))


if __name__ == "__main__":
    main()
