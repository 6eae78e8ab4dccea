"""Failed sign-ins are slowed per account across networks, without locking out its user."""

import threading
import time
from itertools import count

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client

from apps.accounts.models import Role, User
from apps.accounts.sessions.known_devices import COOKIE, remember_device
from apps.accounts.sessions.sign_in_limits import (
    FIRST_DELAY_SECONDS,
    FREE_FAILURES,
    LONGEST_DELAY_SECONDS,
    TRIES_PER_NAME,
)
from apps.accounts.sign_in import (
    SignInRefused,
    TooManyTries,
    create_sign_in_link,
    redeem_sign_in_link,
    sign_in_with_password,
)
from apps.accounts.user_accounts import change_password
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough secret"
DAY = 24 * 60 * 60
MOST_GUESSES = 150


@pytest.fixture
def clock(monkeypatch):
    """A clock that stops until a test moves it."""
    now = [1_800_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


@pytest.fixture
def ada(db) -> User:
    return make_user(Role.VIEWER, username="ada", password=PASSWORD)


_networks = count(1)


def new_network() -> str:
    number = next(_networks)
    return f"198.18.{number // 250}.{number % 250 + 1}"


def attempt(rf, username: str, password: str = "wrong", *, address: str = "", device: str = "") -> User:
    request = rf.post("/sign-in/", REMOTE_ADDR=address or new_network())
    if device:
        request.COOKIES[COOKIE] = device
    return sign_in_with_password(request=request, username=username, password=password)


def fail(rf, username: str, *, times: int) -> None:
    """Fail to sign in, each time from another network."""
    for _ in range(times):
        with pytest.raises(SignInRefused) as refused:
            attempt(rf, username)
        assert type(refused.value) is SignInRefused


def delay(rf, username: str, password: str = "wrong", **fields: str) -> int:
    """The seconds that a try is told to wait; 0 if its password was checked."""
    try:
        attempt(rf, username, password, **fields)
    except TooManyTries as slowed:
        return slowed.retry_after
    except SignInRefused:
        pass
    return 0


def device_of(user: User) -> str:
    response = HttpResponse()
    remember_device(response, user)
    return response.cookies[COOKIE].value


def test_an_account_is_slowed_however_many_networks_guess_its_password(rf, clock, ada):
    fail(rf, "ada", times=FREE_FAILURES + 1)
    assert [delay(rf, name, PASSWORD) for name in ("ada", "ADA")] == [FIRST_DELAY_SECONDS] * 2
    make_user(username="eve", password=PASSWORD)
    assert attempt(rf, "eve", PASSWORD).username == "eve"
    clock[0] += FIRST_DELAY_SECONDS
    assert attempt(rf, "ada", PASSWORD) == ada


def test_the_delay_doubles_up_to_the_longest_and_a_day_later_ends(rf, clock, ada):
    fail(rf, "ada", times=FREE_FAILURES)
    delays = []
    for _ in range(8):
        fail(rf, "ada", times=1)
        delays.append(delay(rf, "ada"))
        clock[0] += delays[-1]
    assert delays[:3] == [FIRST_DELAY_SECONDS * factor for factor in (1, 2, 4)]
    assert delays[-2:] == [LONGEST_DELAY_SECONDS] * 2
    clock[0] += DAY
    fail(rf, "ada", times=FREE_FAILURES)


def test_a_day_of_guesses_from_new_networks_checks_few_passwords(rf, clock, ada):
    checked, end = 0, clock[0] + DAY
    while clock[0] < end and checked < MOST_GUESSES:
        waited = delay(rf, "ada")
        checked += not waited
        clock[0] += waited or 1
    assert FREE_FAILURES < checked < MOST_GUESSES


def test_an_unknown_name_and_a_closed_account_are_slowed_alike(rf, clock, ada):
    make_user(username="closed", password=PASSWORD, is_active=False)
    told = {}
    for name in ("ada", "closed", "unknown"):
        told[name] = []
        for _ in range(FREE_FAILURES + 4):
            with pytest.raises(SignInRefused) as refused:
                attempt(rf, name)
            told[name].append((str(refused.value), getattr(refused.value, "retry_after", None)))
    assert told["ada"][-1][1] == FIRST_DELAY_SECONDS
    assert told["ada"] == told["closed"] == told["unknown"]


def test_signing_in_ends_the_delay(rf, clock, ada):
    device = device_of(ada)
    for sign_in in (
        lambda: attempt(rf, "ada", PASSWORD, device=device),
        lambda: redeem_sign_in_link(create_sign_in_link(user=ada)),
    ):
        fail(rf, "ada", times=FREE_FAILURES + 1)
        assert delay(rf, "ada") > 0
        assert sign_in() == ada
    fail(rf, "ada", times=FREE_FAILURES)


def test_strangers_do_not_slow_a_known_device(rf, clock, ada):
    device, office = device_of(ada), "192.0.2.7"
    fail(rf, "ada", times=FREE_FAILURES + 1)
    assert [delay(rf, "ada", PASSWORD, address=office), delay(rf, "ada", address=office)] == [FIRST_DELAY_SECONDS] * 2
    # Nor does a stranger in the same network, who has used up all of its tries.
    for number in range(60):
        delay(rf, f"name{number}", address=office)
    assert attempt(rf, "ada", PASSWORD, address=office, device=device) == ada


def test_a_known_device_has_tries_of_its_own_which_are_limited(rf, clock, ada):
    device = device_of(ada)
    assert [delay(rf, "ada", device=device) for _ in range(TRIES_PER_NAME)] == [0] * TRIES_PER_NAME
    assert delay(rf, "ada", PASSWORD, device=device) > 0
    checked = 0
    end = clock[0] + DAY
    while clock[0] < end and checked < MOST_GUESSES:
        waited = delay(rf, "ada", device=device)
        checked += not waited
        clock[0] += waited or 1
    assert checked < MOST_GUESSES
    assert attempt(rf, "ada", PASSWORD) == ada


@pytest.mark.parametrize("kind", ["of another user", "altered", "made up", "before the new password", "too old"])
def test_a_device_that_is_not_known_is_slowed(rf, clock, ada, kind):
    device = device_of(ada)
    if kind == "of another user":
        device = device_of(make_user(username="eve", password=PASSWORD))
    elif kind == "altered":
        device = device[:-1] + ("a" if device[-1] != "a" else "b")
    elif kind == "made up":
        device = f"{ada.pk}:device:fingerprint"
    elif kind == "before the new password":
        change_password(person=ada, password="another long secret", by=ada)
    else:
        clock[0] += 400 * DAY
    fail(rf, "ada", times=FREE_FAILURES + 1)
    assert delay(rf, "ada", PASSWORD, device=device) > 0


@pytest.mark.django_db(transaction=True)
def test_of_tries_at_the_same_moment_one_is_checked(rf, clock):
    fail(rf, "ada", times=FREE_FAILURES)
    waited: list[int] = []

    def guess() -> None:
        waited.append(delay(rf, "ada"))
        connection.close()

    threads = [threading.Thread(target=guess) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    waited.sort()
    assert (waited[0], len(waited)) == (0, 6)
    assert waited[1] >= FIRST_DELAY_SECONDS  # more if two tries were counted before the first of them began the delay


def test_the_page_tells_a_stranger_to_wait_and_lets_the_browser_of_the_user_in(rf, clock, ada):
    signing = {"username": "ada", "password": PASSWORD}
    mine, by_link, stranger = Client(), Client(), Client()
    mine.post("/sign-in/", signing)
    cookie = mine.cookies[COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/sign-in/")
    mine.post("/sign-out/")
    by_link.post(f"/sign-in/{create_sign_in_link(user=ada)}/")
    by_link.post("/sign-out/")
    fail(rf, "ada", times=FREE_FAILURES + 1)
    told = stranger.post("/sign-in/", signing)
    assert (told.status_code, told["Retry-After"]) == (429, str(FIRST_DELAY_SECONDS))
    assert "1 minute" in told.text
    assert by_link.post("/sign-in/", signing).status_code == 302
    fail(rf, "ada", times=FREE_FAILURES + 1)
    assert mine.post("/sign-in/", signing).status_code == 302


def test_the_browser_in_which_the_password_was_changed_stays_known(rf, clock, ada):
    mine, new = Client(), "another long enough secret"
    mine.post("/sign-in/", {"username": "ada", "password": PASSWORD})
    mine.post("/account/", {"current": PASSWORD, "password": new, "again": new})
    mine.post("/sign-out/")
    fail(rf, "ada", times=FREE_FAILURES + 1)
    assert mine.post("/sign-in/", {"username": "ada", "password": new}).status_code == 302
