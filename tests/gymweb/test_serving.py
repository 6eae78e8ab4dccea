"""The server in a process of its own: bodies of any size in little memory, early refusals, sockets, orderly ends."""

import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import select
import signal
import socket
import threading
import time
from pathlib import Path

import aiohttp
import pytest

from tests.deadlines import DEADLINE, wait_until
from tests.gymweb.serving import read_response, send_until_refused, serving, start

MB = 1024**2
HEAD = "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {type}\r\n{more}\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    file = tmp_path_factory.mktemp("download") / "big.bin"
    with file.open("wb") as stream:
        for number in range(300):
            stream.write(bytes([number % 256]) * MB)
    var = tmp_path_factory.mktemp("var")
    with serving(var, "--no-worker", SERVED_FILE=str(file), SERVED_MAX_BODY=str(400 * MB)) as server:
        server.file, server.var = file, var
        yield server


@pytest.fixture
def connection(served):
    with served.connect() as connection:
        yield connection


def post_head(path: str, *more: str, type: str = "application/x-ndjson") -> bytes:
    return HEAD.format(path=path, type=type, more="".join(f"{line}\r\n" for line in more)).encode()


class MemoryWatch:
    """The most memory that the server took beyond what it had at the beginning."""

    def __init__(self, served) -> None:
        self._served, self._over = served, threading.Event()
        self._before = self._most = served.rss()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            self._most = max(self._most, self._served.rss())

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self._most - self._before


@pytest.mark.parametrize("size", [0, 1, 65536, 256 * 1024, 256 * 1024 + 1, 3 * MB])
@pytest.mark.parametrize("path", ["/uploads/", "/copied/uploads/"])
def test_a_body_arrives_unchanged(connection, path, size):
    body = os.urandom(size)
    connection.sendall(post_head(path, f"Content-Length: {size}") + body)
    status, _, reply = read_response(connection)
    assert (status, json.loads(reply)) == (200, {"size": size, "sha256": hashlib.sha256(body).hexdigest()})


def test_a_chunked_body_arrives_and_the_connection_is_used_again(connection):
    for text in (b"first", b"second body"):
        connection.sendall(post_head("/uploads/", "Transfer-Encoding: chunked"))
        for piece in (text[:3], text[3:], b""):
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        status, _, reply = read_response(connection)
        assert (status, json.loads(reply)["sha256"]) == (200, hashlib.sha256(text).hexdigest())


def test_a_form_arrives(connection):
    body = b"a=1&b=%C3%A9"
    type = "application/x-www-form-urlencoded"
    connection.sendall(post_head("/form/", f"Content-Length: {len(body)}", type=type) + body)
    assert json.loads(read_response(connection)[2]) == {"a": "1", "b": "é"}


KEY = "Authorization: Bearer gw_a_b"
PROBLEM = {"type": "urn:gymweb:problem:too-large", "title": "Content Too Large", "status": 413}


@pytest.mark.parametrize(
    ("path", "limit", "name"),
    [
        ("/uploads/?on_error=skip", 400 * MB, "GYMWEB_MAX_BODY_BYTES"),
        ("/other/?next=/uploads/", 16 * MB, "limit of requests other than uploads"),
        ("/other/uploads/", 16 * MB, "limit of requests other than uploads"),
        ("/nothing/uploads/", 16 * MB, "limit of requests other than uploads"),
    ],
)
def test_a_body_over_the_limit_is_refused_by_its_length(connection, path, limit, name):
    connection.sendall(post_head(path, f"Content-Length: {limit + 1}", "Expect: 100-continue", KEY))
    status, headers, body = read_response(connection)
    assert (status, headers["content-type"]) == (413, "application/problem+json")
    told = json.loads(body)
    assert f"{limit:,} bytes ({name})" in told.pop("detail")
    assert told.pop("request_id") == headers["x-request-id"]
    assert told == PROBLEM


@pytest.mark.parametrize("path", ["/capture/cs_1_x/v1/chat/completions", "/ng-rollout/cs_1_x/v1/responses"])
def test_a_call_of_an_agent_over_the_limit_is_refused_as_its_client_reads_errors(connection, path):
    connection.sendall(post_head(path, f"Content-Length: {32 * MB + 1}", KEY))
    status, _, body = read_response(connection)
    told = json.loads(body)
    assert (status, told["error"]["code"], told["error"]["message"]) == (413, "request_too_large", told["detail"])
    assert "(limit of a model call)" in told["detail"]


def test_a_browser_whose_form_is_refused_gets_a_page(connection):
    connection.sendall(post_head("/uploads/", f"Content-Length: {400 * MB + 1}", KEY, "Accept: text/html,*/*;q=0.8"))
    status, headers, body = read_response(connection)
    assert (status, headers["content-type"]) == (413, "text/html; charset=utf-8")
    assert "<h1>Content Too Large</h1>" in body.decode()
    assert "GYMWEB_MAX_BODY_BYTES" in body.decode()


@pytest.mark.parametrize("more", [[], ["Cookie: theme=dark; sessionid=", "Cookie: sessionid"]])
def test_a_stranger_cannot_send_a_file(connection, more):
    connection.sendall(post_head("/uploads/", f"Content-Length: {16 * MB + 1}", *more))
    status, _, body = read_response(connection)
    assert (status, "without API key" in json.loads(body)["detail"]) == (413, True)


@pytest.mark.parametrize("credential", ["Cookie: theme=dark; sessionid=abc", KEY])
def test_with_a_session_or_a_key_a_file_is_taken(connection, credential):
    body = bytes(17 * MB)
    connection.sendall(post_head("/uploads/", f"Content-Length: {len(body)}", credential) + body)
    assert json.loads(read_response(connection)[2])["size"] == len(body)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("narrow"), "--no-worker", GYMWEB_MAX_SPOOLED_BYTES=str(30 * MB)) as server:
        yield server


def refusal(connection) -> tuple[int, str, str]:
    status, _, body = read_response(connection)
    problem = json.loads(body)
    assert problem["status"] == status
    return status, problem["title"], problem["detail"].split(".")[0]


def spooled(server) -> int:
    """Bytes in the temporary files that the server has open; they have no name."""
    total = 0
    for descriptor in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "/tmp/" in str(descriptor.readlink()):
                total += descriptor.stat().st_size
    return total


FULL = (503, "Service Unavailable", "Too many large requests (GYMWEB_MAX_SPOOLED_BYTES)")


def test_all_bodies_together_have_a_limit_too(narrow):
    with narrow.connect() as first, narrow.connect() as second, narrow.connect() as third, narrow.connect() as form:
        first.sendall(post_head("/uploads/", f"Content-Length: {20 * MB}", KEY) + bytes(20 * MB - 1))
        wait_until(lambda: spooled(narrow) >= 19 * MB)
        # Small enough not to be refused at once: it is refused when there is no room for what has come.
        second.sendall(post_head("/other/", f"Content-Length: {15 * MB}") + bytes(12 * MB))
        assert refusal(second) == FULL
        third.sendall(post_head("/uploads/", f"Content-Length: {17 * MB}", KEY))
        assert refusal(third) == FULL
        # A form of usual size has room all the same.
        form.sendall(post_head("/uploads/", "Content-Length: 60000") + bytes(60000))
        assert read_response(form)[0] == 200
        first.sendall(b"x")
        assert json.loads(read_response(first)[2])["size"] == 20 * MB


def test_room_comes_back_when_bodies_end_or_clients_leave(narrow):
    for _ in range(3):
        with narrow.connect() as left:
            left.sendall(post_head("/uploads/", f"Content-Length: {25 * MB}", KEY) + bytes(24 * MB))
        for path in ("/uploads/", "/copied/uploads/"):
            wait_until(lambda path=path: send_whole(narrow, path, 25 * MB) == 200)


def send_whole(served, path: str, size: int) -> int:
    with served.connect() as connection:
        connection.sendall(post_head(path, f"Content-Length: {size}", KEY))
        blocks = itertools.repeat(bytes(MB), size // MB)
        send_until_refused(connection, blocks)
        return read_response(connection)[0]


def test_spooled_bodies_keep_a_reserve_on_the_disk(tmp_path):
    with serving(tmp_path, "--no-worker", GYMWEB_MIN_FREE_BYTES=str(10**18)) as server:
        for head in (f"Content-Length: {17 * MB}", f"Content-Length: {MB}", "Transfer-Encoding: chunked"):
            with server.connect() as connection:
                connection.sendall(post_head("/uploads/", head, KEY))
                chunk = b"%x\r\n%b\r\n" % (65536, bytes(65536))
                blocks = itertools.repeat(chunk, 1600) if "chunked" in head else [bytes(MB)]
                assert send_until_refused(connection, blocks) < 60 * MB
                status, _, body = read_response(connection)
                assert (status, json.loads(body)["type"]) == (507, "urn:gymweb:problem:disk-full"), head
        # A form of usual size stays in memory: people can sign in.
        with server.connect() as connection:
            connection.sendall(post_head("/uploads/", "Content-Length: 60000", KEY) + bytes(60_000))
            assert read_response(connection)[0] == 200


def test_a_body_of_unknown_length_is_refused_once_it_is_over_the_limit(connection):
    connection.sendall(post_head("/other/", "Transfer-Encoding: chunked"))
    chunk = b"%x\r\n%b\r\n" % (65536, b"x" * 65536)
    sent = send_until_refused(connection, itertools.repeat(chunk, 1600))
    assert 16 * MB < sent < 40 * MB
    status, _, body = read_response(connection)
    assert (status, json.loads(body)["status"]) == (413, 413)


def test_a_client_that_does_not_listen_is_cut_off_and_nothing_stays_on_disk(served):
    with served.connect() as connection:
        connection.sendall(post_head("/other/", f"Content-Length: {1000 * MB}"))
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(1000):
                connection.sendall(b"x" * MB)
    assert list((served.var / "tmp").iterdir()) == []


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing(served):
    with served.connect() as connection:
        connection.sendall(post_head("/uploads/", f"Content-Length: {10 * MB}") + b"x" * MB)
    with served.connect() as connection:
        connection.sendall(post_head("/uploads/", "Content-Length: 2") + b"ok")
        assert read_response(connection)[0] == 200
    assert list((served.var / "tmp").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "path"), [("ndjson", "/uploads/"), ("ndjson", "/copied/uploads/"), ("multipart", "/uploads/")]
)
def test_a_large_upload_takes_little_memory(served, connection, kind, path):
    size, block = 200 * MB, b"x" * MB
    head = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
    tail = b"\r\n--cut--\r\n"
    if kind == "ndjson":
        head = tail = b""
    type = "multipart/form-data; boundary=cut" if kind == "multipart" else "application/x-ndjson"
    with MemoryWatch(served) as memory:
        length = f"Content-Length: {len(head) + size + len(tail)}"
        connection.sendall(post_head(path, length, KEY, type=type) + head)
        for _ in range(200):
            connection.sendall(block)
        connection.sendall(tail)
        status, _, reply = read_response(connection)
    assert (status, json.loads(reply)["size"]) == (200, size)
    assert memory.growth < 50 * MB


@pytest.mark.slow
def test_a_download_waits_for_a_slow_reader_instead_of_filling_memory(served, connection):
    digest, size = hashlib.sha256(), 0
    with MemoryWatch(served) as memory:
        connection.sendall(b"GET /download/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = connection.recv(65536)
        time.sleep(1)  # The reader is slow; memory is asserted, not time.
        head, body = received.split(b"\r\n\r\n", 1)
        while body:
            digest.update(body)
            size += len(body)
            body = connection.recv(65536)
    assert head.startswith(b"HTTP/1.1 200")
    assert (size, digest.hexdigest()) == (300 * MB, hashlib.sha256(served.file.read_bytes()).hexdigest())
    assert memory.growth < 50 * MB


def test_a_download_that_is_given_up_ends(served, connection):
    connection.sendall(b"GET /download/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.recv(1000)
    connection.close()
    with served.connect() as other:
        other.sendall(b"GET /slow/?seconds=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(other)[0] == 200


def test_a_reply_that_breaks_under_way_ends_its_connection_each_time(served):
    """The first one must not end what looks after the others."""
    for _ in range(2):
        with served.connect() as connection:
            connection.sendall(b"GET /breaking/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    received += piece
        # Not ended as a whole reply would be.
        assert (received[:12], received.endswith(b"0\r\n\r\n")) == (b"HTTP/1.1 200", False)


def test_sockets_work(served):
    async def talk() -> list[str]:
        address = f"http://127.0.0.1:{served.port}/ws/"
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as ws:
            await ws.send_str("one")
            await ws.send_str("two")
            return [(await ws.receive(5)).data, (await ws.receive(5)).data]

    assert asyncio.run(talk()) == ["one", "two"]


def test_a_port_in_use_is_said_and_ends_with_1(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start(tmp_path, "--port", str(port), "--no-worker")
        said, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert f"CommandError: GymWeb cannot listen on 127.0.0.1:{port}: " in said
    assert "Address already in use" in said
    assert "GymWeb is at" not in said


def test_a_thread_that_needs_the_event_loop_does_not_keep_the_server_from_ending(tmp_path):
    with serving(tmp_path, "--no-worker") as server, server.connect() as connection:
        connection.sendall(b"GET /leaving/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(connection)[2] == b"done"
        server.signal()
        assert server.process.wait(DEADLINE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_with_0(tmp_path, number):
    with serving(tmp_path, "--no-worker") as server, server.connect():  # an idle connection does not hold it up
        server.signal(number)
        assert server.process.wait(DEADLINE) == 0


def test_a_second_signal_ends_the_server_at_once(tmp_path):
    with serving(tmp_path, "--no-worker", SERVED_DRAIN_UNTIL=str(tmp_path / "never")) as server:
        server.signal()
        wait_for_drain(server)
        server.signal()
        assert server.process.wait(DEADLINE) == 130


def wait_for_drain(server) -> None:
    said = ""
    while "draining\n" not in said:
        assert select.select([server.process.stdout], [], [], DEADLINE)[0], said
        said += os.read(server.process.stdout.fileno(), 65536).decode()


def test_pages_are_answered_while_the_server_drains(tmp_path):
    drained = tmp_path / "drained"
    with serving(tmp_path, "--no-worker", SERVED_DRAIN_UNTIL=str(drained)) as server:
        with server.connect() as before:
            # The connection is known to the server once it has answered one request.
            before.sendall(b"GET /slow/?seconds=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_response(before)[2] == b"done"
            server.signal()
            wait_for_drain(server)
            before.sendall(b"GET /slow/?seconds=0.2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_response(before)[2] == b"done"
        drained.touch()
        assert server.process.wait(DEADLINE) == 0
