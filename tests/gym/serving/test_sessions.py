import asyncio

import pytest

from apps.gym.serving.served_request import Refused
from apps.gym.serving.sessions import VERIFIED_SECONDS, Sessions


class Held:
    def __init__(self):
        self.closed = 0

    async def close(self):
        self.closed += 1


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


async def held():
    return Held()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sessions(clock):
    return Sessions(most=2, seconds=100.0, clock=clock)


def test_a_session_lives_on_with_every_call_and_ends_without(sessions, clock):
    held = Held()
    name = sessions.add(held)
    for clock.now in (90.0, 180.0):
        assert sessions.find(name) is held
    clock.now = 280.0
    assert sessions.find(name) is None
    asyncio.run(sessions.sweep())
    assert (len(sessions), held.closed) == (0, 1)


def test_names_cannot_be_guessed_and_unknown_ones_find_nothing(sessions):
    names = {sessions.add(Held()) for _ in range(100)}
    assert (len(names), min(map(len, names)) >= 32) == (100, True)
    assert sessions.find("") is None
    assert sessions.find("x" * 32) is None


def test_the_cap_holds_until_a_session_ends(sessions, clock):
    async def fill():
        await sessions.open(held)
        await sessions.open(held)
        with pytest.raises(Refused, match="All 2 sessions"):
            await sessions.open(held)
        clock.now = 100.0
        await sessions.open(held)

    asyncio.run(fill())
    assert len(sessions) == 1


def test_sessions_that_are_still_being_opened_count_too(sessions):
    async def slowly():
        await asyncio.sleep(0.01)
        return Held()

    async def broken():
        await asyncio.sleep(0.01)
        raise ValueError

    async def storm():
        failing = await asyncio.gather(*(sessions.open(broken) for _ in range(5)), return_exceptions=True)
        opening = await asyncio.gather(*(sessions.open(slowly) for _ in range(50)), return_exceptions=True)
        return [sum(isinstance(one, kind) for one in each) for each in (failing, opening) for kind in (Refused, str)]

    assert asyncio.run(storm()) == [3, 0, 48, 2]
    assert len(sessions) == 2


def test_a_verified_session_frees_its_place_and_expires_after_a_minute(sessions, clock):
    first, second = Held(), Held()
    verified, running = sessions.add(first), sessions.add(second)
    sessions.mark_verified(verified)
    clock.now = VERIFIED_SECONDS - 1
    assert sessions.find(verified) is first
    asyncio.run(sessions.open(held))
    assert (first.closed, second.closed, sessions.find(running)) == (1, 0, second)
    sessions.mark_verified(running)
    clock.now += VERIFIED_SECONDS
    assert sessions.find(running) is None


def test_sessions_for_one_answer_are_bounded_too_and_take_no_place_of_the_others(sessions):
    opened = []

    async def opening():
        opened.append(Held())
        return opened[-1]

    async def verify():
        async with sessions.borrow(opening):
            await asyncio.sleep(0.01)

    async def storm():
        for _ in range(2):
            await sessions.open(held)
        found = await asyncio.gather(*(verify() for _ in range(20)), return_exceptions=True)
        await verify()
        return [one for one in found if one is not None]

    refused = asyncio.run(storm())
    assert {type(one) for one in refused} == {Refused}
    assert (len(refused), refused[0].status, refused[0].headers) == (18, 503, {"Retry-After": "5"})
    assert [one.closed for one in opened] == [1, 1, 1]
    assert len(sessions) == 2


def test_closing_twice_is_once(sessions):
    held = Held()
    name = sessions.add(held)
    assert [asyncio.run(sessions.close(name)) for _ in range(2)] == [True, False]
    assert held.closed == 1


def test_all_are_closed_at_the_end(sessions):
    held = [Held(), Held()]
    for each in held:
        sessions.add(each)
    asyncio.run(sessions.close_all())
    assert ([each.closed for each in held], len(sessions)) == ([1, 1], 0)
