"""The thin HTTP client: connections are kept, replies end where they should, and what is not HTTP is refused."""

import asyncio

import pytest
import uvloop
from yarl import URL

from apps.gym.calls import http_connection
from apps.gym.calls.http_client import HttpClient, resolve_name, unpack

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


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


def talk(server, work):
    async def main():
        listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        client = HttpClient(resolve_name)
        port = listening.sockets[0].getsockname()[1]

        async def get(path="/", body=None, **headers):
            url = URL(f"http://127.0.0.1:{port}{path}")
            method = "GET" if body is None else "POST"
            reply = await client.send(method, url, headers=headers, body=body, connect_timeout=5.0)
            chunks = reply.chunks()
            parts = [part async for part in (unpack(chunks, reply.encoding) if reply.encoding else chunks)]
            return reply.status, b"".join(parts)

        try:
            async with asyncio.timeout(20):
                return await work(get)
        finally:
            await client.close()
            listening.close()

    return uvloop.run(main())


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
    ],
    ids=["chunks", "until the end of the connection", "after 100", "in pieces", "no body", "large"],
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
    ],
    ids=["nothing", "no HTTP", "too short", "half a chunk", "endless headers"],
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


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nb", "a\rb"])
def test_no_header_smuggles_in_another(value):
    server = Server(HELLO)

    async def work(get):
        with pytest.raises(ValueError, match="line break"):
            await get(Accept=value)

    talk(server, work)
    assert server.requests == []


def test_what_comes_without_a_request_ends_the_connection():
    server = Server([HELLO, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"], HELLO)

    async def work(get):
        first = await get()
        await asyncio.sleep(0.1)
        return first, await get()

    assert talk(server, work) == ((200, b"hello"), (200, b"hello"))
