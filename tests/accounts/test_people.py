"""Accounts are made by admins, have no default password, and never lose their last admin."""

from io import StringIO

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command

from apps.accounts.models import AuditEntry, Role, User
from apps.accounts.sign_in import redeem_sign_in_link
from apps.accounts.user_accounts import LastAdmin, change_password, create_user, edit_user
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def test_an_account_without_a_password_cannot_be_entered_by_one():
    user = create_user(username="ada", role=Role.ENGINEER)
    assert not user.has_usable_password()
    assert AuditEntry.objects.get().detail == {"role": "engineer"}


@pytest.mark.parametrize("fields", [{"password": "short"}, {"role": "owner"}, {"username": "taken"}, {"username": ""}])
def test_a_weak_password_an_unknown_role_and_a_bad_name_are_refused(fields):
    create_user(username="taken")
    with pytest.raises(ValidationError):
        create_user(**{"username": "new", "password": "a long enough secret", **fields})
    assert User.objects.count() == 1


@pytest.mark.parametrize("change", [{"role": Role.ENGINEER}, {"role": Role.ADMIN, "is_active": False}])
def test_the_last_admin_stays_admin(change):
    admin = make_user(Role.ADMIN)
    make_user(Role.ADMIN, is_active=False)
    with pytest.raises(LastAdmin):
        edit_user(person=admin, by=admin, **change)
    admin.refresh_from_db()
    assert (admin.role, admin.is_active) == (Role.ADMIN, True)
    second = make_user(Role.ADMIN)
    edit_user(person=admin, by=second, **change)
    assert User.objects.filter(role=Role.ADMIN, is_active=True).get() == second


def test_a_new_password_works_and_a_weak_one_is_refused():
    user = create_user(username="ada")
    with pytest.raises(ValidationError):
        change_password(person=user, password="12345", by=user)
    change_password(person=user, password="a long enough secret", by=user)
    assert User.objects.get().check_password("a long enough secret")


def test_the_command_takes_the_password_from_the_environment_and_never_makes_one_up(monkeypatch, capsys):
    monkeypatch.setenv("GYMWEB_PASSWORD", "a long enough secret")
    call_command("create_user", "ada", "--role", "admin")
    ada = User.objects.get(username="ada")
    assert (ada.role, ada.check_password("a long enough secret")) == (Role.ADMIN, True)
    monkeypatch.delenv("GYMWEB_PASSWORD")
    monkeypatch.setattr("sys.stdin", StringIO(""))
    with pytest.raises(CommandError, match="Give a password"):
        call_command("create_user", "bob")
    assert not User.objects.filter(username="bob").exists()


def test_the_command_names_the_way_on_for_a_user_that_exists(capsys):
    call_command("create_user", "ada", "--link")
    with pytest.raises(CommandError, match=r"`manage\.py sign_in_link ada` prints a link"):
        call_command("create_user", "ada", "--link")
    assert User.objects.count() == 1


def test_a_printed_link_signs_in_once(capsys, client):
    call_command("create_user", "ada", "--role", "admin", "--link", "--base-url", "http://localhost:9000/")
    call_command("sign_in_link", "ada")
    first, second = capsys.readouterr().out.split()
    assert first.startswith("http://localhost:9000/sign-in/")
    tokens = [link.rstrip("/").rsplit("/", 1)[1] for link in (first, second)]
    ada = User.objects.get()
    assert [redeem_sign_in_link(token) for token in (*tokens, *tokens)] == [ada, ada, None, None]
    assert not ada.has_usable_password()
    with pytest.raises(CommandError, match="inactive user"):
        call_command("sign_in_link", "nobody")


def test_a_printed_link_has_the_address_of_the_site(capsys, settings):
    settings.CSRF_TRUSTED_ORIGINS = ["https://*.example.org", "https://gym.example.org:8443"]
    call_command("create_user", "ada", "--link")
    assert capsys.readouterr().out.startswith("https://gym.example.org:8443/sign-in/")


def test_a_printed_link_can_name_the_page_that_it_opens(capsys, client):
    call_command("create_user", "ada", "--link", "--next", "/rubrics/?a=b")
    call_command("sign_in_link", "ada", "--next", "/rubrics/?a=b")
    for link in capsys.readouterr().out.split():
        assert client.post(link.removeprefix("http://127.0.0.1:8000"))["Location"] == "/rubrics/?a=b"
    for command in (["sign_in_link", "ada"], ["create_user", "bob", "--link"]):
        with pytest.raises(CommandError, match="Give a path on this site"):
            call_command(*command, "--next", "//evil.example/")
    assert list(User.objects.values_list("username", flat=True)) == ["ada"]
