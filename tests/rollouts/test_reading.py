"""Who reads a stream: what nobody comes back to is cancelled, and nothing that somebody still reads."""

import json
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from apps.accounts.api_keys import create_api_key, revoke_api_key, still_may
from apps.accounts.permissions import Permission
from apps.rollouts.models import Collection
from apps.rollouts.streams import rollout_stream
from apps.rollouts.streams.rollout_stream import (
    COME_BACK,
    RolloutStream,
    begin_reading,
    expect_reader,
    leave_unread,
    sweep_left,
)
from tests.factories import make_user
from tests.rollouts.work import plan

pytestmark = pytest.mark.usefixtures("migrated")


def wait_out(collection):
    """As if the time to come back were over."""
    left = Collection.objects.filter(pk=collection.pk, left_at__isnull=False)
    left.update(left_at=timezone.now() - COME_BACK - timedelta(seconds=1))


def state(collection):
    return Collection.objects.get(pk=collection.pk).state


def test_a_reader_that_does_not_come_back_leaves_a_cancelled_collection():
    collection = plan()
    reader = begin_reading(collection=collection)
    leave_unread(collection=collection, reader=reader)
    assert (sweep_left(), state(collection)) == (False, "running")
    wait_out(collection)
    assert [sweep_left(), sweep_left(), state(collection)] == [True, False, "cancelled"]


def test_an_answer_that_never_reached_its_reader_is_cancelled_too():
    collection = plan()
    expect_reader(collection=collection)
    wait_out(collection)
    assert (sweep_left(), state(collection)) == (True, "cancelled")


@pytest.mark.parametrize("first_leaves_before", [True, False])
def test_a_returning_reader_continues(first_leaves_before):
    collection = plan()
    first = begin_reading(collection=collection)
    if first_leaves_before:
        leave_unread(collection=collection, reader=first)
    expect_reader(collection=collection)
    begin_reading(collection=collection)
    if not first_leaves_before:
        # The server saw later than the client that the connection had broken.
        leave_unread(collection=collection, reader=first)
    wait_out(collection)
    assert (sweep_left(), state(collection)) == (False, "running")


@pytest.mark.parametrize(("keep", "left"), [(False, "cancelled"), (True, "running")])
def test_a_stream_ends_when_its_reader_may_read_it_no_more(monkeypatch, keep, left):
    monkeypatch.setattr(rollout_stream, "ACCESS_SECONDS", 0.0)
    collection = plan()
    given = {"grouped": False, "seconds": 60.0, "keep": keep, "user": None, "may_return": True}
    stream = RolloutStream(collection=collection, **given, may_read=lambda: False)

    async def read():
        return [json.loads(line) async for line in stream.lines()]

    first, last = async_to_sync(read)()
    assert (first["type"], last["type"], last["reason"]) == ("collection", "end", "denied")
    assert state(collection) == left


def test_a_closed_account_a_revoked_key_and_a_lower_role_may_no_more():
    user = make_user("engineer")
    key, _ = create_api_key(user=user, name="trainer", scopes=["rollouts:run"])
    other, _ = create_api_key(user=user, name="other", scopes=["rollouts:run"])

    def may(auth):
        return still_may(user.pk, auth, Permission.COLLECT)

    assert (may(key), may(None)) == (True, True)
    revoke_api_key(api_key=key, user=user)
    assert (may(key), may(other)) == (False, True)
    type(user).objects.filter(pk=user.pk).update(role="viewer")
    assert (may(other), may(None)) == (False, False)
    type(user).objects.filter(pk=user.pk).update(role="engineer", is_active=False)
    assert (may(other), may(None)) == (False, False)
