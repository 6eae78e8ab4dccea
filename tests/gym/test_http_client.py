"""The thin HTTP client: connections are kept, replies end where they should, and what is not HTTP is refused."""

import asyncio
import gc
import gzip
import weakref
from contextvars import ContextVar

import pytest
import uvloop
from yarl import URL

from apps.gym.calls import http_connection
from apps.gym.calls.http_client import HttpClient, resolve_name, unpack

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def zipped(body):
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Server:
    """Answers the n-th request of each connection with the n-th reply; None closes the connection."""

    def __init__(self, *replies):
        self.replies = replies
        self.requests = []
        self.connections = 0

    async def handle(self, reader, writer):
        self.connections += 1
        for reply in self.replies:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")), 0)
            self.requests.append((head, await reader.readexactly(length)))
            if reply is None:
                break
            for piece in reply if isinstance(reply, list) else [reply]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()


def connect(server, work, *, kind=HttpClient, run=uvloop.run):
    """Run `work(client, url)` while the server listens."""

    async def main():
        listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        client = kind(resolve_name)
        try:
            async with asyncio.timeout(20):
                return await work(client, URL(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"))
        finally:
            await client.close()
            listening.close()

    return run(main())


def talk(server, work):
    async def use(client, url):
        async def get(path="/", body=None, **headers):
            method = "GET" if body is None else "POST"
            address = URL(f"{url}{path}")
            reply = await client.send(method, address, headers=headers, body=body, connect_timeout=5.0)
            chunks = reply.chunks()
            parts = [part async for part in (unpack(chunks, reply.encoding) if reply.encoding else chunks)]
            return reply.status, b"".join(parts)

        return await work(get)

    return connect(server, use)


def test_a_connection_is_used_again_and_carries_one_request_at_a_time():
    server = Server(HELLO, HELLO, HELLO)

    async def work(get):
        assert await get() == (200, b"hello")
        assert await get("/again?x=1", body=b"{}", Accept="text/plain") == (200, b"hello")
        assert server.connections == 1
        await asyncio.gather(get(), get())

    talk(server, work)
    assert server.connections == 2
    head, body = server.requests[1]
    assert (head.split(b"\r\n")[0], body) == (b"POST /again?x=1 HTTP/1.1", b"{}")
    assert b"Accept: text/plain\r\n" in head and b"Accept: */*" not in head


def test_a_body_that_cannot_be_encoded_closes_its_connection():
    server = Server(HELLO, HELLO, HELLO)

    def encode():
        raise ValueError("no JSON")

    async def work(get):
        for _ in range(2):  # on a new connection, then on a used one
            with pytest.raises(ValueError, match="no JSON"):
                await get(body=encode)
            assert await get(body=lambda: b"{}") == (200, b"hello")

    talk(server, work)
    assert [body for _, body in server.requests] == [b"{}", b"{}"]


def test_a_connection_that_has_been_idle_for_long_is_not_used_again(monkeypatch):
    monkeypatch.setattr(http_connection, "KEEP_ALIVE", 0.0)
    server = Server(HELLO, HELLO)

    async def work(get):
        await get()
        await get()

    talk(server, work)
    assert server.connections == 2


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n", b"2\r\nlo\r\n0\r\n\r\n"], b"hello"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", b"hello"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", HELLO], b"hello"),
        ([HELLO[:10], HELLO[10:41], HELLO[41:]], b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + b"x" * 400_000, b"x" * 400_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhello", b"hello"),
        (zipped(gzip.compress(b"hel") + gzip.compress(b"lo")), b"hello"),
        (zipped(b""), b""),
    ],
    ids=[
        "chunks",
        "until the end of the connection",
        "after 100",
        "in pieces",
        "no body",
        "large",
        "identity",
        "two gzip members",
        "empty gzip body",
    ],
)
def test_replies_end_where_they_should(reply, body):
    server = Server(reply)

    async def work(get):
        return await get()

    assert talk(server, work)[1] == body


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9 \r\n\r\nhello",
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            *[b"X: " + b"x" * 9_000 + b"\r\n"] * 99,
            b"\r\n",
        ],
    ],
    ids=[
        "nothing",
        "no HTTP",
        "too short",
        "half a chunk",
        "endless headers",
        "too short, with a space after its length",
        "endless trailers",
    ],
)
def test_a_reply_that_breaks_off_or_is_no_http_is_an_error_and_its_connection_is_not_kept(reply):
    server = Server(reply)

    async def work(get):
        with pytest.raises(OSError, match=r"\w"):
            await get()
        server.replies = [HELLO]
        return await get()

    assert talk(server, work) == (200, b"hello")
    assert server.connections == 2


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br"])
def test_a_body_that_is_not_encoded_as_it_says_is_an_error(encoding):
    async def work(get):
        with pytest.raises(OSError, match=encoding.decode()):
            await get()

    talk(Server(HELLO.replace(b"\r\n\r\n", b"\r\nContent-Encoding: " + encoding + b"\r\n\r\n")), work)


def test_half_a_gzip_body_is_an_error():
    async def work(get):
        with pytest.raises(OSError, match="in the middle of its reply"):
            await get()

    talk(Server(zipped(gzip.compress(b"hello")[:-1])), work)


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\rb"])
def test_no_header_smuggles_in_another(value):
    server = Server(HELLO)

    async def work(get):
        with pytest.raises(ValueError, match="line break"):
            await get(Accept=value)

    talk(server, work)
    assert server.requests == []


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Transfer-Encoding", "Connection"])
def test_a_caller_cannot_set_the_framing_of_a_request(name):
    server = Server(HELLO)

    async def work(get):
        with pytest.raises(ValueError, match=f"{name.lower()} cannot be set"):
            await get(body=b"{}", **{name: "1"})

    talk(server, work)
    assert server.requests == []


def test_a_connection_that_closes_instead_of_a_second_reply_is_an_error():
    async def work(get):
        assert await get() == (204, b"")
        with pytest.raises(OSError, match="without a reply"):
            await get()

    talk(Server(b"HTTP/1.1 204 No Content\r\n\r\n", None), work)


def test_trailers_are_not_headers():
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nSet-Cookie: a=b\r\n\r\n"

    async def work(client, url):
        return await client.send("GET", url, headers={}, body=None, connect_timeout=5.0)

    assert "Set-Cookie" not in connect(Server(reply), work).headers


class Impatient(HttpClient):
    """When the first reply is complete, it sends the second request and cancels the first."""

    tasks = ()

    def start(self, url):
        return asyncio.ensure_future(self.send("GET", url, headers={}, body=None, connect_timeout=5.0))

    def keep(self, connection):
        super().keep(connection)
        if len(self.tasks) == 1:
            self.tasks.append(self.start(self.url))
            self.tasks[0].cancel()


def test_a_request_cancelled_after_its_reply_leaves_the_connection_to_the_next_request():
    server = Server(HELLO, HELLO)

    async def work(client, url):
        client.url = url
        client.tasks = [client.start(url)]
        with pytest.raises(asyncio.CancelledError):
            await client.tasks[0]
        return (await client.tasks[1]).take()

    assert connect(server, work, kind=Impatient) == b"hello"
    assert server.connections == 1


def test_unrequested_bytes_close_the_connection():
    server = Server([HELLO, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"], HELLO)

    async def work(get):
        first = await get()
        await asyncio.sleep(0.1)
        return first, await get()

    assert talk(server, work) == ((200, b"hello"), (200, b"hello"))


class SilentServer(Server):
    async def handle(self, reader, writer):
        await reader.read()
        writer.close()


def test_a_call_that_is_cancelled_at_any_moment_leaves_no_connection():
    async def work(client, url):
        for steps in [*range(40)] * 5:
            call = asyncio.ensure_future(client.send("GET", url, headers={}, body=None, connect_timeout=5.0))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(0.1)
        return len(client._open)

    assert connect(SilentServer(), work, run=asyncio.run) == 0


class Variable:
    """The value of a context variable of a caller."""


def test_an_idle_connection_keeps_neither_the_context_of_its_caller_nor_a_parser():
    variable = ContextVar("variable")

    async def opens(client, url):
        value = Variable()
        variable.set(value)
        await client.send("GET", url, headers={}, body=None, connect_timeout=5.0)
        return weakref.ref(value)

    async def work(client, url):
        kept = await asyncio.create_task(opens(client, url))
        await asyncio.sleep(0)  # until the event loop drops the task
        gc.collect()
        [connection] = client._open
        return kept(), connection._parser

    assert connect(Server(HELLO, HELLO), work) == (None, None)


def chunked(*parts):
    return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *(b"%x\r\n%b\r\n" % (len(p), p) for p in parts)]


def pass_on(server, write, ready):
    async def work(client, url):
        reply = await client.send("GET", url, headers={}, body=None, connect_timeout=5.0, streams=True)
        await reply.pass_on(write, ready)

    connect(server, work)


def test_a_body_is_passed_on_and_reading_pauses_for_a_slow_reader():
    received, sizes = [], []

    def write(part):
        received.append(part)
        return False

    async def ready():
        before = len(received)
        await asyncio.sleep(0.02)
        sizes.append(sum(map(len, received[before:])))

    parts = [bytes([number]) * 60_000 for number in range(100)]
    pass_on(Server([*chunked(*parts), b"0\r\n\r\n"]), write, ready)
    assert b"".join(received) == b"".join(parts)
    # Only the first wait may receive more: reading does not pause before the first part.
    assert len(sizes) > 10 and not any(sizes[1:])


def test_a_passed_on_body_that_breaks_off_is_an_error():
    async def ready():
        pass

    received = []
    with pytest.raises(OSError, match="in the middle of its reply"):
        pass_on(Server(chunked(b"hel")), lambda part: not received.append(part), ready)
    assert b"".join(received) == b"hel"
