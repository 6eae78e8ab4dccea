"""Too many requests a minute of one key, person or address are a 429 that says when to come back."""

import pytest
from django.test import Client

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import Role
from apps.accounts.request_limits import ADDRESSES, CALLERS
from tests.factories import make_user

pytestmark = pytest.mark.django_db
ME = "/api/v1/me/"


@pytest.fixture(autouse=True)
def _rates(settings, settings_of_tests):
    settings.API_RATE, settings.API_ADDRESS_RATE = 5, 12
    CALLERS.forget()
    ADDRESSES.forget()
    yield
    CALLERS.forget()
    ADDRESSES.forget()


def program(user=None, address="192.0.2.7") -> Client:
    _, token = create_api_key(user=user or make_user(Role.ENGINEER), name="test", scopes=["admin"])
    return Client(headers={"Authorization": f"Bearer {token}"}, REMOTE_ADDR=address)


def statuses(client: Client, number: int, path: str = ME) -> list[int]:
    return [client.get(path).status_code for _ in range(number)]


def test_a_key_has_so_many_requests_and_then_a_problem_with_retry_after():
    client = program()
    assert statuses(client, 7) == [200] * 5 + [429] * 2
    reply = client.get(ME)
    assert (reply["Content-Type"], reply.json()["type"]) == ("application/problem+json", "urn:gymweb:problem:throttled")
    assert 1 <= int(reply["Retry-After"]) <= 61


def test_each_key_has_its_own_and_a_person_in_a_session_too():
    user = make_user(Role.ENGINEER)
    first, second, session = program(user), program(user, "192.0.2.8"), Client(REMOTE_ADDR="192.0.2.9")
    session.force_login(user)
    assert [statuses(one, 6) for one in (first, second, session)] == [[200] * 5 + [429]] * 3


def test_an_address_bounds_all_its_keys_together():
    keys = [program() for _ in range(4)]
    assert [statuses(one, 4) for one in keys] == [[200] * 4, [200] * 4, [200] * 4, [429] * 4]
    assert statuses(program(address="192.0.2.8"), 1) == [200]


def test_keys_cannot_be_guessed_without_end():
    client = Client(headers={"Authorization": "Bearer gw_0123456789ab_wrong"}, REMOTE_ADDR="192.0.2.7")
    assert statuses(client, 15) == [401] * 12 + [429] * 3


def test_behind_a_proxy_that_is_not_believed_addresses_are_not_counted(settings):
    settings.SECURE, settings.SECURE_SSL_REDIRECT = True, False
    assert [statuses(program(), 5) for _ in range(4)] == [[200] * 5] * 4


def test_each_address_behind_trusted_proxies_is_one(settings):
    settings.TRUSTED_PROXIES = 1
    clients = [program() for _ in range(3)]
    for number, client in enumerate(clients):
        client.defaults["HTTP_X_FORWARDED_FOR"] = f"198.51.100.{number}"
    assert [statuses(one, 5) for one in clients] == [[200] * 5] * 3


def test_zero_is_no_limit(settings):
    settings.API_RATE = settings.API_ADDRESS_RATE = 0
    assert statuses(program(), 30) == [200] * 30


def test_served_environments_and_what_leads_nowhere_are_not_counted():
    client = program()
    assert statuses(client, 20, "/gym/environments/none/") == [404] * 20
    assert statuses(client, 20, "/api/v1/nothing/") == [404] * 20
    assert statuses(client, 5) == [200] * 5


def test_requests_over_the_rate_have_no_effect():
    client = program()
    statuses(client, 5)
    body = {"slug": "late", "name": "Late"}
    assert client.post("/api/v1/agents/", body, content_type="application/json").status_code == 429
    assert client.get("/api/v1/agents/late/").status_code == 429
