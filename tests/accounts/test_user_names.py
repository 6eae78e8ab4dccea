"""User names that differ only by case are refused, and counters and devices belong to an account, not to its name."""

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction

from apps.accounts.models import Role
from apps.accounts.sessions.known_devices import COOKIE, find_device
from apps.accounts.sessions.sign_in_limits import TRIES_PER_NAME
from apps.accounts.user_accounts import create_user
from tests.accounts.test_sign_in_limits import device_of
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough secret"


def allow_equal_names() -> None:
    """Drop the constraint until the test ends."""
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX user_name_once_in_any_case")


@pytest.mark.parametrize("name", ["ada", "Ada", "ADA"])
def test_a_name_that_differs_only_by_case_is_taken(name):
    make_user(Role.ADMIN, username="ada")
    with pytest.raises(ValidationError) as refused:
        create_user(username=name, by=None)
    assert list(refused.value.message_dict) == ["username"]
    with pytest.raises(IntegrityError), transaction.atomic():
        make_user(username=name)


def test_an_account_keeps_its_name_when_it_is_changed():
    ada = make_user(username="ada")
    ada.full_clean(exclude=["password"])


def test_a_device_counts_only_for_its_own_account(rf):
    allow_equal_names()
    ada, other = make_user(username="ada", password=PASSWORD), make_user(username="Ada", password=PASSWORD)
    request = rf.post("/sign-in/")
    request.COOKIES[COOKIE] = device_of(other)
    assert (bool(find_device(request, other)), find_device(request, ada)) == (True, "")
    assert find_device(request, None) == ""


def test_any_case_of_a_name_counts_for_the_same_account(client):
    make_user(username="ada", password=PASSWORD)
    for number in range(TRIES_PER_NAME):
        name = "ADA" if number % 2 else "ada"
        assert client.post("/sign-in/", {"username": name, "password": "wrong"}).status_code == 422
    assert client.post("/sign-in/", {"username": "ada", "password": PASSWORD}).status_code == 429
