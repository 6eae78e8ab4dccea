"""The one way out: what it refuses, what it follows, and what it costs when a server misbehaves."""

import asyncio
import gzip

import orjson
import pytest
import uvloop
from aiohttp import web

from apps.gym.calls.outbound import Outbound, OutboundFailed, OutboundRedirectRefused, OutboundTimedOut
from apps.gym.calls.outbound_policy import OutboundPolicy, OutboundRefused
from tests.deadlines import DEADLINE

LOCAL = OutboundPolicy(["127.0.0.1"])


def refused(url, allow=()):
    try:
        OutboundPolicy(allow).check_url(url)
    except OutboundRefused:
        return True
    return False


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.8.8.8:8000/v1",
        "http://0.0.0.0/",
        "http://0.1.2.3/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://169.254.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://168.63.129.16/",
        "http://198.18.0.1/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[::1]/",
        "http://[::]/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fc00::1]/",
        "http://[fd12::1]/",
        "http://[ff02::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:8.8.8.8]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b::808:808]/",
        "http://[2002:7f00:1::]/",
        "http://[2001:0:1::1]/",
        "http://[2001:db8::1]/",
        "http://2130706433/",
        "http://localhost:8000/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://１２７.0.0.1/",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://:secret@example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "example.com/v1",
        "http://",
        "http:///path",
        "http://example.com:99999/",
        "http://example.com:0/v1",
        "",
    ],
)
def test_a_url_that_is_not_plain_public_http_is_refused(url):
    assert refused(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com/v1",
        "http://8.8.8.8/",
        "http://172.32.0.1/",
        "http://100.128.0.1/",
        "https://[2606:4700::1111]/v1",
        "http://internal.example:8000/v1",
    ],
)
def test_public_addresses_and_names_pass_the_first_check(url):
    assert not refused(url)


@pytest.mark.parametrize(
    ("allow", "url", "is_refused"),
    [
        (["127.0.0.1"], "http://127.0.0.1:9000/", False),
        (["127.0.0.1"], "http://127.0.0.2:9000/", True),
        (["127.0.0.1:9000"], "http://127.0.0.1:9000/", False),
        (["127.0.0.1:9000"], "http://127.0.0.1:9001/", True),
        (["127.0.0.1:80"], "http://127.0.0.1/", False),
        (["10.0.0.0/8"], "http://10.9.8.7:1234/", False),
        (["10.0.0.0/8"], "http://192.168.0.1/", True),
        (["localhost"], "http://127.0.0.1:8000/", False),
        (["localhost"], "http://[::1]:8000/", False),
        (["localhost:8000"], "http://127.0.0.1:8001/", True),
        (["localhost:8000"], "http://localhost:8000/", False),
        (["127.0.0.1"], "http://localhost:8000/", False),
        (["[::1]:8000"], "http://[::1]:8000/", False),
        (["::1"], "http://[::1]:8000/", False),
        (["fd00::/8"], "http://[fd12::1]/", False),
        (["169.254.0.0/16"], "http://169.254.1.1/", False),
        (["169.254.0.0/16", "0.0.0.0/0", "169.254.169.254/32"], "http://169.254.169.254/", True),
        (["169.254.169.254"], "http://169.254.169.254/", False),
        (["::/0"], "http://[::ffff:169.254.169.254]/", True),
        (["::/0"], "http://[fd00:ec2::254]/", True),
    ],
)
def test_the_allow_list_opens_what_it_names_and_nothing_else(allow, url, is_refused):
    assert refused(url, allow) is is_refused


@pytest.mark.parametrize("entry", ["10.0.0.0/99", "http://host", "a host", "host:port", "user@host", "*"])
def test_a_bad_allow_entry_is_an_error_that_names_the_setting(entry):
    with pytest.raises(ValueError, match="GYMWEB_OUTBOUND_ALLOW"):
        OutboundPolicy([entry])


@pytest.mark.parametrize("host", ["[::1]", "[fd00::5]", "10.1.2.3", "localhost"])
def test_the_entry_that_a_refusal_names_opens_that_port_and_no_other(host):
    with pytest.raises(OutboundRefused) as refused:
        OutboundPolicy().check_url(f"http://{host}:8001/v1")
    entry = str(refused.value).split(" add ")[1].split(" to ")[0]
    assert entry == f"{host}:8001"
    OutboundPolicy([entry]).check_url(f"http://{host}:8001/v1")
    with pytest.raises(OutboundRefused):
        OutboundPolicy([entry]).check_url(f"http://{host}:8002/v1")


def test_a_refusal_names_the_setting_and_the_entry_to_add():
    with pytest.raises(OutboundRefused, match=r"add 10\.0\.0\.1:8000 to GYMWEB_OUTBOUND_ALLOW"):
        OutboundPolicy([]).check_url("http://10.0.0.1:8000/v1")


class Names:
    """Answers each name with the next of its addresses; the last one stays."""

    def __init__(self, **addresses):
        self.addresses = {name.replace("_", "."): list(given) for name, given in addresses.items()}
        self.asked = []

    async def __call__(self, host, port):
        self.asked.append(host)
        given = self.addresses[host]
        address = given.pop(0) if len(given) > 1 else given[0]
        return [address] if isinstance(address, str) else address


def serve(handler, talk):
    """Run `talk(port)` against a server on 127.0.0.1 whose every request goes to `handler`."""

    async def main():
        runner = web.ServerRunner(web.Server(handler))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        try:
            return await talk(port)
        finally:
            await runner.cleanup()

    return uvloop.run(main())


def call(handler, *, path="/", policy=LOCAL, resolve=None, host="127.0.0.1", method="GET", **given):
    async def talk(port):
        outbound = Outbound(policy, **({"resolve": resolve} if resolve else {}))
        try:
            return await outbound.request(method, f"http://{host}:{port}{path}", **{"timeout": 5.0, **given})
        finally:
            await outbound.close()

    return serve(handler, talk)


async def hello(request):
    return web.json_response({"path": request.path, "method": request.method, "body": await request.text()})


def test_a_call_comes_back_whole():
    seen = {}

    async def handler(request):
        seen.update(request.headers)
        response = web.Response(status=201, body=await request.read(), headers={"X-Mark": "1"})
        response.headers.add("Set-Cookie", "session=abc==; Path=/; HttpOnly")
        response.headers.add("Set-Cookie", "other=1")
        return response

    reply = call(
        handler, method="POST", body=b"[1]", headers={"Authorization": "Bearer k"}, cookies={"a": "1", "b": "2"}
    )
    assert (reply.status, reply.body, reply.headers["x-mark"]) == (201, b"[1]", "1")
    assert reply.cookies == {"session": "abc==", "other": "1"}
    assert (seen["Authorization"], seen["Cookie"], seen["User-Agent"]) == ("Bearer k", "a=1; b=2", "GymWeb")


def test_cookies_are_not_kept_between_calls():
    seen = []

    async def handler(request):
        seen.append(request.headers.get("Cookie"))
        return web.Response(headers={"Set-Cookie": "session=1"})

    async def talk(port):
        outbound = Outbound(LOCAL)
        for _ in range(2):
            await outbound.request("GET", f"http://127.0.0.1:{port}/", timeout=DEADLINE)
        await outbound.close()

    serve(handler, talk)
    assert seen == [None, None]


def test_a_name_that_resolves_to_a_private_address_is_refused_at_connect():
    with pytest.raises(OutboundRefused, match=r"inner\.example:\d+ is not a public address"):
        call(hello, host="inner.example", policy=OutboundPolicy([]), resolve=Names(inner_example=["127.0.0.1"]))


@pytest.mark.parametrize("host", ["0x7f.1", "0x7f000001"])
def test_an_address_in_another_base_is_resolved_before_the_check(host):
    with pytest.raises(OutboundRefused):
        call(hello, host=host, policy=OutboundPolicy([]))


def test_localhost_is_reached_where_only_its_address_is_allowed():
    assert call(hello, host="localhost").status == 200


def test_a_name_that_rebinds_to_loopback_is_refused_on_its_next_connection():
    async def talk(port):
        # The first answer is public as far as this policy goes, and the server closes the connection after it.
        policy = OutboundPolicy(["127.0.0.1"])
        outbound = Outbound(policy, resolve=Names(rebind_example=["127.0.0.1", "127.0.0.2"]))
        url = f"http://rebind.example:{port}/"
        first = await outbound.request("GET", url, timeout=DEADLINE)
        outbound._client._dns_cache.clear()
        with pytest.raises(OutboundRefused):
            await outbound.request("GET", url, timeout=DEADLINE)
        await outbound.close()
        return first.status

    async def closing(request):
        response = web.Response()
        response.force_close()
        return response

    assert serve(closing, talk) == 200


def test_a_name_with_one_forbidden_address_connects_to_the_others_only():
    names = Names(mixed_example=[["10.0.0.1", "127.0.0.1"]])
    reply = call(hello, host="mixed.example", resolve=names)
    assert reply.status == 200
    assert names.asked == ["mixed.example"]


def test_an_allowed_name_covers_whatever_it_resolves_to_but_metadata():
    policy = OutboundPolicy(["inner.example"])
    assert call(hello, host="Inner.Example", policy=policy, resolve=Names(inner_example=["127.0.0.1"])).status == 200
    with pytest.raises(OutboundRefused, match="cloud metadata address"):
        call(hello, host="inner.example", policy=policy, resolve=Names(inner_example=["169.254.169.254"]))


def test_metadata_addresses_are_never_suggested_for_the_allow_list():
    with pytest.raises(OutboundRefused) as metadata:
        OutboundPolicy().check_url("http://169.254.169.254/latest/meta-data/")
    with pytest.raises(OutboundRefused, match=r"add 10\.0\.0\.1:80 to GYMWEB_OUTBOUND_ALLOW"):
        OutboundPolicy().check_url("http://10.0.0.1/")
    assert "169.254.169.254:80 is a cloud metadata" in str(metadata.value)
    assert "GYMWEB_OUTBOUND_ALLOW" not in str(metadata.value)


def redirecting(status, location):
    async def handler(request):
        if request.path == "/start":
            return web.Response(status=status, headers={"Location": location, "Set-Cookie": "hop=1"})
        return web.json_response(
            {
                "path": request.path,
                "method": request.method,
                "body": await request.text(),
                "authorization": request.headers.get("Authorization"),
                "cookie": request.headers.get("Cookie"),
            }
        )

    return handler


def end_of(status, location, **given):
    reply = call(redirecting(status, location), path="/start", headers={"Authorization": "Bearer k"}, **given)
    return orjson.loads(reply.body)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_get_is_redirected_with_its_credentials_inside_its_origin(status):
    assert end_of(status, "/end", cookies={"a": "1"}) == {
        "path": "/end",
        "method": "GET",
        "body": "",
        "authorization": "Bearer k",
        "cookie": "a=1; hop=1",
    }


@pytest.mark.parametrize("status", [307, 308])
def test_a_post_keeps_its_method_and_body_on_307_and_308(status):
    end = end_of(status, "/end", method="POST", body=b"words")
    assert (end["method"], end["body"]) == ("POST", "words")


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_post_is_not_turned_into_a_get(status):
    with pytest.raises(OutboundRefused, match="redirected a POST"):
        end_of(status, "/end", method="POST", body=b"words")


def test_credentials_do_not_cross_origins():
    async def second(request):
        return web.json_response(
            {name: request.headers.get(name) for name in ("Authorization", "Cookie", "X-Session-ID")}
        )

    async def talk(other_port):
        async def inner(port):
            outbound = Outbound(LOCAL)
            reply = await outbound.request(
                "GET",
                f"http://127.0.0.1:{port}/start",
                headers={"Authorization": "k"},
                session="s",
                cookies={"a": "1"},
                timeout=5,
            )
            await outbound.close()
            return reply

        runner = web.ServerRunner(web.Server(redirecting(302, f"http://127.0.0.1:{other_port}/end")))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            return await inner(site._server.sockets[0].getsockname()[1])
        finally:
            await runner.cleanup()

    reply = serve(second, talk)
    assert (reply.body, reply.cookies) == (b'{"Authorization": null, "Cookie": null, "X-Session-ID": null}', {})


@pytest.mark.parametrize(
    "location", ["http://169.254.169.254/latest", "http://10.0.0.1/", "file:///etc/passwd", "http://user@127.0.0.1/"]
)
def test_each_hop_of_a_redirect_is_checked(location):
    with pytest.raises(OutboundRedirectRefused, match="redirected the call"):
        end_of(302, location)


def test_redirects_end_after_three():
    with pytest.raises(OutboundRefused, match="more than 3 redirects"):
        end_of(302, "/start")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_reply_over_the_limit_is_refused_by_its_name(chunked):
    async def handler(request):
        response = web.StreamResponse()
        if chunked:
            response.enable_chunked_encoding()
        else:
            response.content_length = 5000
        await response.prepare(request)
        await response.write(b"x" * 5000)
        return response

    with pytest.raises(OutboundFailed, match="limit of 1,000 bytes"):
        call(handler, max_bytes=1000)
    assert len(call(handler, max_bytes=5000).body) == 5000


def test_a_compressed_bomb_is_measured_unpacked():
    async def handler(request):
        return web.Response(body=gzip.compress(b"\0" * 2_000_000), headers={"Content-Encoding": "gzip"})

    with pytest.raises(OutboundFailed, match="limit of 1,000,000 bytes"):
        call(handler, max_bytes=1_000_000)


def test_a_silent_server_times_out():
    async def handler(request):
        await asyncio.sleep(0.3)

    with pytest.raises(OutboundTimedOut, match=r"no reply within 0\.05 s"):
        call(handler, timeout=0.05)


def test_a_server_that_stops_in_the_middle_of_a_body_times_out():
    async def handler(request):
        response = web.StreamResponse()
        response.content_length = 100
        await response.prepare(request)
        await response.write(b"x")
        await asyncio.sleep(0.3)

    with pytest.raises(OutboundTimedOut):
        call(handler, timeout=0.1)


def test_a_refused_connection_is_a_failure_without_the_query():
    async def talk(port):
        outbound = Outbound(LOCAL)
        try:
            await outbound.request("GET", "http://127.0.0.1:1/v1?key=secret", timeout=DEADLINE)
        finally:
            await outbound.close()

    with pytest.raises(OutboundFailed) as caught:
        serve(hello, talk)
    assert "http://127.0.0.1:1/v1: " in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_connection_that_the_server_closed_is_a_failure_and_the_next_call_opens_a_new_one():
    async def main():
        opened = 0

        async def talk(reader, writer):
            nonlocal opened
            opened += 1
            await reader.readuntil(b"\r\n\r\n")
            if opened > 1:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        outbound = Outbound(LOCAL)
        with pytest.raises(OutboundFailed):
            await outbound.request("POST", url, body=b"", timeout=DEADLINE)
        reply = await outbound.request("POST", url, body=b"", timeout=DEADLINE)
        await outbound.close()
        server.close()
        return reply.body

    assert uvloop.run(main()) == b"ok"


def test_one_connection_serves_many_calls():
    peers = set()

    async def handler(request):
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response()

    async def talk(port):
        outbound = Outbound(LOCAL)
        for number in range(20):
            await outbound.request("GET", f"http://127.0.0.1:{port}/{number}", timeout=DEADLINE)
        await outbound.close()

    serve(handler, talk)
    assert len(peers) == 1


def test_a_session_is_sent_in_its_header_and_again_after_a_redirect():
    seen = []

    async def handler(request):
        seen.append(request.headers.getall("X-Session-ID"))
        return web.Response(status=307, headers={"Location": "/end"}) if request.path == "/" else web.Response()

    assert call(handler, method="POST", body=b"{}", session="rollout-7").status == 200
    assert seen == [["rollout-7"], ["rollout-7"]]


def test_a_session_cannot_add_a_header():
    with pytest.raises(OutboundRefused, match="line break"):
        call(None, session="a\r\nHost: b")
