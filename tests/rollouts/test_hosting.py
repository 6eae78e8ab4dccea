"""The host of served things: what hangs holds up nobody else, and rows that change are connected anew."""

import asyncio
import threading

import pytest

from apps.gym.serving.served_request import IncomingRequest, json_answer
from apps.rollouts.serving.hosting import Host
from tests.deadlines import DEADLINE


class Served:
    cookie = ""

    def __init__(self):
        self.closed = 0

    async def answer(self, asked):
        return json_answer({"status": "ok"})

    async def tidy(self):
        pass

    async def close(self):
        self.closed += 1


@pytest.fixture
def host():
    host = Host()
    yield host
    host.close()


def ask(host, name, connect, stamp=1):
    incoming = IncomingRequest(method="GET", path="", body=b"", session="")
    return host.answer(name=name, stamp=stamp, connect=connect, incoming=incoming, seconds=DEADLINE)[0].status


def test_a_server_that_does_not_answer_holds_up_no_other(host):
    connecting, let_go = threading.Event(), threading.Event()

    async def hang(outbound):
        connecting.set()
        while not let_go.is_set():
            await asyncio.sleep(0.01)
        return Served()

    async def quick(outbound):
        return Served()

    hanging = threading.Thread(target=ask, args=(host, "hanging", hang))
    hanging.start()
    try:
        assert connecting.wait(DEADLINE)
        assert ask(host, "quick", quick) == 200
    finally:
        let_go.set()
        hanging.join(DEADLINE)


def test_many_requests_for_one_thing_connect_it_once_and_changed_rows_anew(host):
    made = []

    async def connect(outbound):
        await asyncio.sleep(0.05)
        made.append(Served())
        return made[-1]

    threads = [threading.Thread(target=ask, args=(host, "sums", connect)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(made) == 1
    assert ask(host, "sums", connect, stamp=2) == 200
    assert [served.closed for served in made] == [1, 0]
