"""The channel layer on a real Redis that is not there yet, goes away, hangs, and comes back."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable

import pytest
from asgiref.sync import async_to_sync
from channels.testing import WebsocketCommunicator
from prometheus_client import REGISTRY

from apps.accounts.models import Role
from apps.dashboard.overview.collection_progress import mark_changes
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.notifications import WORKER_CHANNEL, announce_from_loop, notify_workers
from gymweb.asgi import application
from gymweb.channel_layer import LayerUnavailable, PubSubLayer
from scripts.servers import Redis, ServerMissing, redis
from tests.dashboard.pages import signed_in
from tests.deadlines import DEADLINE
from tests.factories import make_collection

WAKE = {"type": "rollouts.wake"}


@pytest.fixture(scope="module")
def server():
    try:
        with redis() as running:
            yield running
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def up(server: Redis) -> Redis:
    server.start()
    return server


@pytest.fixture
def down(server: Redis) -> Redis:
    server.stop()
    return server


@pytest.fixture
def hung(up: Redis):
    """A Redis that takes connections and answers nothing."""
    os.kill(up.pid, signal.SIGSTOP)
    yield up
    os.kill(up.pid, signal.SIGCONT)


def config(server: Redis) -> dict[str, object]:
    return {"hosts": [{"address": server.url, "socket_timeout": None}]}


def connect(server: Redis) -> PubSubLayer:
    """A layer of its own, as another process has."""
    return PubSubLayer(**config(server))


def within(work: Callable[[], Awaitable[object]], *layers: PubSubLayer) -> object:
    async def go() -> object:
        try:
            async with asyncio.timeout(DEADLINE):
                return await work()
        finally:
            for layer in layers:
                await layer.flush()

    return asyncio.run(go())


async def hear(layer: PubSubLayer) -> object:
    return await layer.receive(WORKER_CHANNEL)


async def ring_until_heard(sender: PubSubLayer, listener: "asyncio.Task[object]") -> object:
    """Rings until the listener's task ends; what was not heard is lost, as with a worker that is not there yet."""
    while not listener.done():
        with contextlib.suppress(LayerUnavailable):
            await sender.send(WORKER_CHANNEL, WAKE)
        await asyncio.sleep(0.05)
    return listener.result()


def test_a_notification_reaches_every_worker_from_a_process_that_only_sends(up):
    workers, web = [connect(up) for _ in range(3)], connect(up)

    async def ring() -> list[object]:
        listener = [asyncio.create_task(hear(worker)) for worker in workers]
        return [await ring_until_heard(web, each) for each in listener]

    assert within(ring, *workers, web) == [WAKE, WAKE, WAKE]


def test_listeners_recover_when_redis_is_back(down):
    worker, web = connect(down), connect(down)

    async def come_up() -> object:
        for _ in range(3):
            with pytest.raises(LayerUnavailable):
                await worker.receive(WORKER_CHANNEL)
        assert worker.channels == {}
        await asyncio.to_thread(down.start)
        return await ring_until_heard(web, asyncio.create_task(hear(worker)))

    assert within(come_up, worker, web) == WAKE


def test_a_listener_survives_a_restart_of_redis(up):
    worker, web = connect(up), connect(up)

    async def restart() -> object:
        assert await ring_until_heard(web, asyncio.create_task(hear(worker))) == WAKE
        listener = asyncio.create_task(hear(worker))
        await asyncio.sleep(0.3)
        while listener.done():  # a ring too many of those before
            listener = asyncio.create_task(hear(worker))
            await asyncio.sleep(0.3)
        await asyncio.to_thread(up.kill)
        with pytest.raises(LayerUnavailable):
            await web.send(WORKER_CHANNEL, WAKE)
        await asyncio.to_thread(up.start)
        return await ring_until_heard(web, listener)

    assert within(restart, worker, web) == WAKE


def test_notes_of_an_unopened_socket_are_dropped(down):
    layer = connect(down)

    async def open_often() -> tuple[object, object]:
        for _ in range(5):
            with pytest.raises(LayerUnavailable):
                await layer.new_channel()
        return layer.channels, layer.groups

    assert within(open_often, layer) == ({}, {})


def test_a_hanging_redis_blocks_no_caller(hung):
    layer = connect(hung)

    async def ask() -> None:
        with pytest.raises(LayerUnavailable, match="did not answer within"):
            await layer.send(WORKER_CHANNEL, WAKE)
        with pytest.raises(LayerUnavailable):
            await layer.group_send("collection.1", WAKE)

    # Redis never answers: without a limit of its own, the layer waits until `within` gives up.
    within(ask)


@pytest.fixture
def layered(settings, server):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "gymweb.channel_layer.PubSubLayer", "CONFIG": config(server)}}


def test_ringing_and_announcing_raise_nothing_while_redis_is_down(layered, down):
    notify_workers()
    assert async_to_sync(announce_from_loop)(1) is False


def test_announcing_says_that_it_was_heard(layered, up):
    assert async_to_sync(announce_from_loop)(1) is True


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_began_without_redis_receives_notifications_later(layered, down):
    from channels.layers import get_channel_layer

    async def listen() -> bool:
        worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=1)
        listening = asyncio.create_task(worker._listen())
        await asyncio.sleep(1.5)
        await asyncio.to_thread(down.start)
        try:
            async with asyncio.timeout(DEADLINE):
                while not worker._woken.is_set():
                    await get_channel_layer().send(WORKER_CHANNEL, WAKE)
                    await asyncio.sleep(0.1)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        return worker._woken.is_set()

    assert async_to_sync(listen)() is True


def sockets() -> float | None:
    return REGISTRY.get_sample_value("gymweb_websocket_connections")


def page(cookie: str, pk: int) -> WebsocketCommunicator:
    headers = [
        (b"host", b"localhost"),
        (b"origin", b"http://localhost"),
        (b"cookie", f"sessionid={cookie}".encode()),
    ]
    return WebsocketCommunicator(application, f"/ws/collections/{pk}/", headers=headers)


@pytest.mark.django_db(transaction=True)
def test_a_page_whose_socket_finds_no_redis_is_refused_in_order_and_connects_once_it_is_up(layered, down):
    cookie, collection = signed_in(Role.VIEWER).cookies["sessionid"].value, make_collection(total=4)
    mark = mark_changes(collection, running=0)

    async def visit() -> list[object]:
        first = page(cookie, collection.pk)
        seen: list[object] = [await first.connect(timeout=DEADLINE)]
        await first.wait(timeout=DEADLINE)
        await asyncio.to_thread(down.start)
        second = page(cookie, collection.pk)
        seen.append((await second.connect(timeout=DEADLINE))[0])
        seen.append(await second.receive_from(timeout=DEADLINE) == mark)
        seen.append(await announce_from_loop(collection.pk))
        seen.append(await second.receive_from(timeout=DEADLINE) == mark)
        seen.append(sockets())
        await second.disconnect(timeout=DEADLINE)
        seen.append(sockets())
        return seen

    assert async_to_sync(visit)() == [(False, 4503), True, True, True, True, 1.0, 0.0]


@pytest.mark.django_db(transaction=True)
def test_a_page_that_leaves_while_redis_is_down_breaks_nothing(layered, up):
    cookie, collection = signed_in(Role.VIEWER).cookies["sessionid"].value, make_collection()

    async def leave() -> float | None:
        line = page(cookie, collection.pk)
        await line.connect(timeout=DEADLINE)
        await line.receive_from(timeout=DEADLINE)
        await asyncio.to_thread(up.stop)
        await line.disconnect(timeout=DEADLINE)
        return sockets()

    assert async_to_sync(leave)() == 0.0
