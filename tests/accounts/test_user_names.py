"""User names that differ only by case are refused, and counters and devices belong to an account, not to its name."""

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction

from apps.accounts.models import Role
from apps.accounts.sessions.known_devices import COOKIE, find_device
from apps.accounts.sessions.sign_in_limits import TRIES_PER_NAME
from apps.accounts.user_accounts import create_user, edit_user
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


ADMIN = "\u0430dmin"
"""With a Cyrillic letter."""


@pytest.mark.parametrize(
    ("existing", "name"),
    [
        ("admin", ADMIN),
        ("other", ADMIN),
        ("other", "\u03b1dmin"),
        ("other", "\ua4eedmin"),  # a letter of Lisu
        ("admin", "\u1d00\u1d05\u1d0d\u026a\u0274"),  # small capitals
        # All of its letters are Cyrillic.
        ("ace", "\u0430\u0441\u0435"),
        ("\u0430\u0441\u0435", "ACE"),
        ("\u03c1\u03bf\u03c5", "pou"),
        ("adm\u0131n", "admin"),
        ("admin", "ADMlN"),
        ("admin", "adm1n"),
        ("adm1n", "admin"),
        ("root", "r00t"),
        ("\u04cfena", "Iena"),
        ("admin", "adrnin"),
        ("wave", "VVAVE"),
        ("admin", "\u00e0dmin"),
        ("jos\u00e9", "jose"),
    ],
)
def test_a_name_that_looks_like_another_is_refused(existing, name):
    make_user(username=existing)
    with pytest.raises(ValidationError) as refused:
        create_user(username=name, by=None)
    assert [problem.code for problem in refused.value.error_dict["username"]] == ["look_alike"]


@pytest.mark.parametrize(
    "name",
    [
        "\u043c\u0430\u0440\u0438\u044f",
        "\u03b4\u03b1\u03bd\u03b1\u03b7",
        "jos\u00e9",
        "\u738b-li",
        "ada.l+1@x_y",
        "admin1",
        "admiin",
        "adnin",
        "adrnan",
        "\u043c\u043e\u0439",
    ],
)
def test_names_of_one_alphabet_are_accepted(name):
    make_user(username="admin")
    make_user(username="\u043c\u043e\u0438")
    assert create_user(username=name, by=None).username == name


def test_an_account_with_such_a_name_can_be_changed():
    person = make_user(username=ADMIN)
    edit_user(person=person, role=Role.ANNOTATOR, by=None)
    person.refresh_from_db()
    assert person.role == Role.ANNOTATOR
