"""Measure large transfers: memory of an upload and a download, and bytes sent before a refusal.

`python -m scripts.measure_transfers [--mb 1024]` starts a real server on a free port with its own folder. One JSON
object per line.
"""

import itertools
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.measured_server import Api, Memory, prepare
from scripts.measuring import MB, in_own_process, parse_sizes, say, use_database
from tests.gymweb.serving import Served, read_response, send_until_refused, serving

ROW = {"responses_create_params": {"input": [{"role": "user", "content": "word " * 380}]}, "expected_answer": "4"}
LINE = json.dumps(ROW).encode() + b"\n"
BLOCK = LINE * (MB // len(LINE))


class Watch(Memory):
    """Also measures how long a small request waits meanwhile."""

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        self._served, self._longest = served, 0.0
        self._asking = threading.Thread(target=self._ask)

    def __enter__(self) -> "Watch":
        self._asking.start()
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._asking.join()

    def _ask(self) -> None:
        while not self._over.wait(0.1):
            began = time.monotonic()
            with self._served.connect() as connection:
                connection.settimeout(120)
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                read_response(connection)
            self._longest = max(self._longest, time.monotonic() - began)

    def say(self, name: str, **figures: object) -> None:
        times = {"seconds": round(self.seconds, 2), "longest_wait_of_others_s": round(self._longest, 3)}
        say(name, **figures, growth_mb=self.growth_mb, **times)


def make_download(var: Path) -> str:
    """Return the path of 300 MB of rejected rows. Runs in its own process, on the database in the folder."""
    use_database(var)
    from apps.tasks.models import Dataset, Upload
    from apps.tasks.rejected_rows import rejects_file

    upload = Upload.objects.create(dataset=Dataset.objects.get(slug="measured"), state=Upload.State.REJECTED)
    rejects_file(upload).parent.mkdir(parents=True, exist_ok=True)
    rejects_file(upload).write_bytes(b"x" * (300 * MB))
    return f"/api/v1/uploads/{upload.pk}/rejected/"


def measure_upload(served: Served, key: str, blocks: int, *, multipart: bool) -> None:
    before = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n' if multipart else b""
    content_type = "multipart/form-data; boundary=cut" if multipart else "application/x-ndjson"
    body = itertools.chain([before] * multipart, itertools.repeat(BLOCK, blocks), [b"\r\n--cut--\r\n"] * multipart)
    with Watch(served) as watch:
        status, told = Api(served, key).call("POST", "datasets/measured/uploads/?wait=true", body, content_type)
    name = "upload.multipart" if multipart else "upload.ndjson"
    watch.say(name, mb=blocks * len(BLOCK) // MB, status=status, accepted=told.get("accepted"))


def chunked(block: bytes) -> Iterator[bytes]:
    return itertools.repeat(b"%x\r\n%b\r\n" % (len(block), block))


def measure_refusal(served: Served, key: str, *, declared: bool) -> None:
    length = 3 * 1024**3
    size = f"Content-Length: {length}" if declared else "Transfer-Encoding: chunked"
    head = (
        "POST /api/v1/datasets/measured/uploads/?wait=true HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/x-ndjson\r\n{size}\r\n\r\n"
    )
    with Watch(served) as watch, served.connect() as connection:
        connection.sendall(head.encode())
        blocks = itertools.repeat(BLOCK, length // len(BLOCK)) if declared else chunked(BLOCK)
        sent = send_until_refused(connection, blocks)
        status, _, _ = read_response(connection)
    watch.say("refusal.declared" if declared else "refusal.chunked", status=status, sent_mb=round(sent / MB, 1))


def measure_download(served: Served, path: str, key: str) -> None:
    with Watch(served) as watch, served.connect() as connection:
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {key}", "Connection: close", "", ""]
        connection.sendall("\r\n".join(lines).encode())
        size = sum(map(len, iter(lambda: connection.recv(MB), b"")))
    watch.say("download", mb=size // MB)


def main() -> None:
    blocks = parse_sizes(__doc__, mb=1024).parse_args().mb
    with tempfile.TemporaryDirectory(dir=os.environ.get("GYMWEB_MEASURE_DIR")) as folder:
        var = Path(folder)
        key, download = prepare(var), in_own_process(make_download, var)
        # Chunks count towards a limit that is low enough to be reached soon.
        settings = use_database(var, GYMWEB_MAX_BODY_BYTES=str((blocks + 64) * MB))
        with serving(var, "--no-worker", **settings) as served:
            measure_upload(served, key, min(blocks, 4), multipart=False)
            measure_upload(served, key, blocks, multipart=False)
            measure_upload(served, key, blocks, multipart=True)
            measure_refusal(served, key, declared=True)
            measure_refusal(served, key, declared=False)
            measure_download(served, download, key)


if __name__ == "__main__":
    main()
