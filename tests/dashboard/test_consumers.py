"""The live socket of a collection, through the whole ASGI application."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.testing import WebsocketCommunicator

from apps.accounts.models import Role, User
from apps.rollouts.announcing import announce_from_loop
from apps.rollouts.models import Collection
from gymweb.asgi import application
from tests.dashboard.pages import signed_in
from tests.factories import make_collection

pytestmark = pytest.mark.django_db(transaction=True)


def session(role: str = Role.VIEWER) -> str:
    return signed_in(role).cookies["sessionid"].value


def socket(collection: Collection, cookie: str = "", origin: str = "http://localhost") -> WebsocketCommunicator:
    headers = [(b"host", b"localhost"), (b"origin", origin.encode())]
    if cookie:
        headers.append((b"cookie", f"sessionid={cookie}".encode()))
    return WebsocketCommunicator(application, f"/ws/collections/{collection.pk}/", headers=headers)


def talk(line: WebsocketCommunicator, then: Callable[[], Awaitable[object]] | None = None) -> object:
    """Connect, do `then`, hang up. Gives what `then` gave; None when the connection is refused."""

    async def conversation() -> object:
        accepted, _ = await line.connect()
        try:
            return await then() if accepted and then else None
        finally:
            await line.disconnect()

    return async_to_sync(conversation)()


def test_a_reader_gets_the_progress_on_connecting():
    line = socket(make_collection(total=4, completed=1), session())
    first = talk(line, line.receive_from)
    assert 'id="collection-progress"' in first
    assert "1 of 4 rollouts" in first


def test_a_change_sends_the_partial_again():
    collection = make_collection(total=4)
    line = socket(collection, session())

    async def change() -> str:
        await line.receive_from()
        await sync_to_async(Collection.objects.update)(completed=2)
        await announce_from_loop(collection.pk)
        return await line.receive_from(timeout=5)

    assert "2 of 4 rollouts" in talk(line, change)


def test_many_announcements_become_few_patches_and_the_last_one_is_true():
    collection = make_collection(total=50)
    line = socket(collection, session())

    async def burst() -> list[str]:
        await line.receive_from()
        for done in range(1, 51):
            await sync_to_async(Collection.objects.update)(completed=done)
            await announce_from_loop(collection.pk)
        received = []
        while not await line.receive_nothing(timeout=0.6):
            received.append(await line.receive_from())
        return received

    received = talk(line, burst)
    assert len(received) <= 5
    assert "50 of 50 rollouts" in received[-1]


def test_whoever_is_not_signed_in_is_refused():
    collection = make_collection()
    assert async_to_sync(socket(collection).connect)()[0] is False
    assert async_to_sync(socket(collection, "stolen").connect)()[0] is False


def test_a_page_of_another_site_is_refused():
    collection, cookie = make_collection(), session()
    assert async_to_sync(socket(collection, cookie, origin="https://evil.example").connect)()[0] is False


def test_someone_deactivated_is_refused_and_hung_up_on():
    collection, cookie = make_collection(), session()
    line = socket(collection, cookie)

    async def deactivate() -> dict[str, object]:
        await line.receive_from()
        await sync_to_async(User.objects.update)(is_active=False)
        await announce_from_loop(collection.pk)
        return await line.receive_output(timeout=5)

    assert talk(line, deactivate) == {"type": "websocket.close", "code": 4404}
    assert async_to_sync(socket(collection, cookie).connect)()[0] is False


def test_a_collection_that_is_not_there_hangs_up():
    collection = make_collection()
    line = socket(collection, session())
    collection.delete()
    assert talk(line, line.receive_output) == {"type": "websocket.close", "code": 4404}


def test_what_a_page_says_is_ignored():
    line = socket(make_collection(), session())

    async def chatter() -> bool:
        await line.receive_from()
        await line.send_to(text_data="{]")
        await line.send_to(bytes_data=b"\x00")
        await asyncio.sleep(0)
        return await line.receive_nothing(timeout=0.2)

    assert talk(line, chatter) is True
