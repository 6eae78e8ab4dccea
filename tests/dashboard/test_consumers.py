"""The live socket of a collection, through the whole ASGI application."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.sessions.models import Session
from django.utils import timezone

from apps.accounts.models import Role, User
from apps.dashboard.live.consumers import MIN_SECONDS_BETWEEN
from apps.dashboard.overview.collection_progress import mark_changes
from apps.gym.traces.events import ModelCall, Prompt, encode_event
from apps.gym.traces.items import message
from apps.rollouts.models import Collection, Rollout, TraceEvent
from apps.rollouts.notifications import announce_from_loop
from gymweb.asgi import application
from tests.dashboard.pages import signed_in
from tests.deadlines import DEADLINE
from tests.factories import make_collection, make_rollout

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
        accepted, _ = await line.connect(timeout=DEADLINE)
        try:
            return await then() if accepted and then else None
        finally:
            await line.disconnect(timeout=DEADLINE)

    return async_to_sync(conversation)()


def test_a_new_connection_learns_whether_the_page_is_current():
    collection = make_collection(total=4, completed=1)
    page = signed_in().get(f"/collections/{collection.pk}/").text
    line = socket(collection, session())
    assert f'data-mark="{talk(line, lambda: line.receive_from(timeout=DEADLINE))}"' in page


def test_a_change_sends_another_mark():
    collection = make_collection(total=4)
    line = socket(collection, session())

    async def change() -> bool:
        before = await line.receive_from(timeout=DEADLINE)
        await sync_to_async(Collection.objects.update)(completed=2)
        await announce_from_loop(collection.pk)
        return before != await line.receive_from(timeout=DEADLINE)

    assert talk(line, change) is True


def test_many_announcements_become_few_messages_and_the_last_one_is_true():
    collection = make_collection(total=50)
    line = socket(collection, session())
    last = mark_changes(Collection(pk=collection.pk, total=50, completed=50, state=collection.state), running=0)

    async def burst() -> tuple[int, float]:
        received = [await line.receive_from(timeout=DEADLINE)]
        began = time.monotonic()
        for done in range(1, 51):
            await sync_to_async(Collection.objects.update)(completed=done)
            await announce_from_loop(collection.pk)
        while received[-1] != last:
            received.append(await line.receive_from(timeout=DEADLINE))
        return len(received) - 1, time.monotonic() - began

    messages, seconds = talk(line, burst)
    # The slower the machine, the more messages there may be.
    assert 1 <= messages <= seconds / MIN_SECONDS_BETWEEN + 1
    assert messages < 50


def test_anonymous_connections_are_refused():
    collection = make_collection()
    assert async_to_sync(socket(collection).connect)(timeout=DEADLINE)[0] is False
    assert async_to_sync(socket(collection, "stolen").connect)(timeout=DEADLINE)[0] is False


def test_a_page_of_another_site_is_refused():
    collection, cookie = make_collection(), session()
    assert (
        async_to_sync(socket(collection, cookie, origin="https://evil.example").connect)(timeout=DEADLINE)[0] is False
    )


def test_someone_deactivated_is_refused_and_hung_up_on():
    collection, cookie = make_collection(), session()
    line = socket(collection, cookie)

    async def deactivate() -> dict[str, object]:
        await line.receive_from(timeout=DEADLINE)
        await sync_to_async(User.objects.update)(is_active=False)
        await announce_from_loop(collection.pk)
        return await line.receive_output(timeout=DEADLINE)

    assert talk(line, deactivate) == {"type": "websocket.close", "code": 4404}
    assert async_to_sync(socket(collection, cookie).connect)(timeout=DEADLINE)[0] is False


def test_a_revoked_session_is_hung_up_on_and_refused():
    collection, cookie = make_collection(), session()
    line = socket(collection, cookie)

    async def revoke() -> dict[str, object]:
        await line.receive_from(timeout=DEADLINE)
        await sync_to_async(Session.objects.filter(pk=cookie).delete)()
        await announce_from_loop(collection.pk)
        return await line.receive_output(timeout=DEADLINE)

    assert talk(line, revoke) == {"type": "websocket.close", "code": 4404}
    assert async_to_sync(socket(collection, cookie).connect)(timeout=DEADLINE)[0] is False


def test_a_collection_that_is_not_there_hangs_up():
    collection = make_collection()
    line = socket(collection, session())
    collection.delete()
    assert talk(line, lambda: line.receive_output(timeout=DEADLINE)) == {"type": "websocket.close", "code": 4404}


def test_messages_from_pages_are_ignored():
    line = socket(make_collection(), session())

    async def chatter() -> bool:
        await line.receive_from(timeout=DEADLINE)
        await line.send_to(text_data="{]")
        await line.send_to(bytes_data=b"\x00")
        await asyncio.sleep(0)
        return await line.receive_nothing(timeout=0.2)

    assert talk(line, chatter) is True


# -- the trace of a rollout -------------------------------------------------------------------------------------------


def running() -> Rollout:
    trace = [Prompt(items=[message("user", "hi")])]
    given = {"status": "running", "lease": 1, "reward": None, "stop_reason": "", "finished_at": None}
    return make_rollout(make_collection(), trace=trace, **given)


def trace_socket(rollout: Rollout, seen: str, cookie: str = "") -> WebsocketCommunicator:
    headers = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
    if cookie:
        headers.append((b"cookie", f"sessionid={cookie}".encode()))
    return WebsocketCommunicator(application, f"/ws/rollouts/{rollout.pk}/?seen={seen}", headers=headers)


def say(rollout: Rollout, seq: int, text: str, attempt: int = 1) -> None:
    event = ModelCall(seen=1, items=[message("assistant", text)])
    TraceEvent.objects.create(rollout=rollout, attempt=attempt, seq=seq, kind="model_call", payload=encode_event(event))


def test_a_current_page_gets_only_new_events():
    rollout = running()
    line = trace_socket(rollout, "running-1-1", session())

    async def follow() -> list[str]:
        heard = []
        for seq in (1, 2):
            await sync_to_async(say)(rollout, seq, f"word {seq}")
            await announce_from_loop(rollout.collection_id)
            heard.append(await line.receive_from(timeout=DEADLINE))
        return heard

    first, second = talk(line, follow)
    assert ("word 1" in first, "word 2" in first) == (True, False)
    assert ("word 1" in second, "word 2" in second, 'data-mark="running-1-3"' in second) == (False, True, True)


def test_a_page_that_was_away_catches_up_on_connecting():
    rollout = running()
    for seq in (1, 2, 3):
        say(rollout, seq, f"word {seq}")
    line = trace_socket(rollout, "running-1-2", session())
    caught_up = talk(line, lambda: line.receive_from(timeout=DEADLINE))
    assert [f"word {seq}" in caught_up for seq in (1, 2, 3)] == [False, True, True]


def test_changes_of_other_rollouts_of_the_collection_are_not_told():
    rollout = running()
    line = trace_socket(rollout, "running-1-1", session())

    async def elsewhere() -> bool:
        await announce_from_loop(rollout.collection_id)
        return await line.receive_nothing(timeout=0.6)

    assert talk(line, elsewhere) is True


def test_the_end_of_a_rollout_is_told():
    rollout = running()
    line = trace_socket(rollout, "running-1-1", session())

    async def end() -> str:
        ended = {"status": "completed", "lease": None, "reward": 1.0, "stop_reason": "answered"}
        await sync_to_async(Rollout.objects.update)(**ended, finished_at=timezone.now())
        await announce_from_loop(rollout.collection_id)
        return await line.receive_from(timeout=DEADLINE)

    assert 'data-settled="true"' in talk(line, end)


def test_users_without_access_get_no_events_and_a_deleted_trace_disconnects():
    rollout = running()
    assert async_to_sync(trace_socket(rollout, "running-1-1").connect)(timeout=DEADLINE)[0] is False
    line = trace_socket(rollout, "running-1-1", session())
    rollout.delete()
    assert talk(line, lambda: line.receive_output(timeout=DEADLINE)) == {"type": "websocket.close", "code": 4404}
