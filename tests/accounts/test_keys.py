"""API keys: shown once, kept as a hash, usable until revoked or expired."""

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.utils import timezone

from apps.accounts.api_keys import NotYourKey, create_api_key, find_api_key, revoke_api_key
from apps.accounts.models import ApiKey, AuditEntry, Role, Scope
from apps.accounts.permissions import Permission, key_may
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def test_a_new_key_is_found_by_its_token_and_its_secret_is_nowhere_in_the_database():
    user = make_user()
    api_key, token = create_api_key(user=user, name="laptop", scopes=["admin"])
    secret = token.split("_", 2)[2]
    row = ApiKey.objects.values().get()
    assert find_api_key(token) == api_key
    assert token.startswith(f"gw_{api_key.prefix}_")
    assert not [field for field, value in row.items() if secret in str(value)]
    assert secret not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize("token", ["", "gw", "gw_", "gw_x", "gw__", "xx_{prefix}_{secret}", "gw_{prefix}_wrong", "_"])
def test_no_other_token_finds_a_key(token):
    _, good = create_api_key(user=make_user(), name="laptop", scopes=["admin"])
    _, prefix, secret = good.split("_", 2)
    assert find_api_key(token.format(prefix=prefix, secret=secret)) is None


def test_an_expired_key_a_revoked_key_and_the_key_of_a_closed_account_are_refused():
    user = make_user()
    _, expired_token = create_api_key(
        user=user, name="old", scopes=["admin"], expires_at=timezone.now() - timedelta(seconds=1)
    )
    revoked, revoked_token = create_api_key(user=user, name="lost", scopes=["admin"])
    closed = make_user(is_active=False)
    _, closed_token = create_api_key(user=closed, name="closed", scopes=["admin"])
    revoke_api_key(api_key=revoked, user=user)
    assert [find_api_key(token) for token in (expired_token, revoked_token, closed_token)] == [None, None, None]


def test_no_scope_lets_a_key_make_keys_or_manage_users():
    api_key, _ = create_api_key(user=make_user(Role.ADMIN), name="all", scopes=Scope.values)
    denied = (Permission.OWN_ACCOUNT, Permission.ACCOUNTS)
    assert {permission for permission in Permission if not key_may(api_key, permission)} == set(denied)


def test_only_its_owner_or_an_admin_revokes_a_key():
    owner, other, admin = make_user(), make_user(), make_user(Role.ADMIN)
    first, _ = create_api_key(user=owner, name="first", scopes=["admin"])
    second, _ = create_api_key(user=owner, name="second", scopes=["admin"])
    with pytest.raises(NotYourKey):
        revoke_api_key(api_key=first, user=other)
    revoke_api_key(api_key=first, user=owner)
    revoke_api_key(api_key=second, user=admin)
    assert not ApiKey.objects.usable().exists()


@pytest.mark.parametrize("scopes", [[], ["everything"], ["export", "export"], [["admin"]]])
def test_a_key_needs_known_scopes(scopes):
    with pytest.raises(ValidationError):
        create_api_key(user=make_user(), name="wrong", scopes=scopes)
    assert not ApiKey.objects.exists()


def test_a_scope_that_is_unknown_gives_nothing():
    api_key, _ = create_api_key(user=make_user(Role.ADMIN), name="old", scopes=["admin"])
    api_key.scopes = ["everything", "", "READ"]
    assert [permission for permission in Permission if key_may(api_key, permission)] == []


def test_using_a_key_writes_from_where():
    api_key, token = create_api_key(user=make_user(), name="laptop", scopes=["admin"])
    find_api_key(token, address="192.0.2.7")
    api_key.refresh_from_db()
    assert api_key.last_used_address == "192.0.2.7"


def test_the_commands_create_list_and_revoke_a_key(capsys):
    make_user(username="ada")
    call_command("create_api_key", "ada", "--name", "ci", "--scope", "tasks:write", "--scope", "export", "--days", "7")
    token = capsys.readouterr().out.strip()
    api_key = find_api_key(token, address="192.0.2.7")
    assert api_key is not None
    assert (api_key.user.username, api_key.scopes) == ("ada", ["export", "tasks:write"])
    assert api_key.expires_at is not None
    assert 6 <= (api_key.expires_at - timezone.now()).days <= 7
    call_command("revoke_api_key")
    listed = capsys.readouterr().out
    assert listed.startswith(f"{api_key.prefix}  ada  ci  export tasks:write  used: ")
    assert listed.strip().endswith("192.0.2.7")
    call_command("revoke_api_key", api_key.prefix)
    call_command("revoke_api_key", api_key.prefix)
    first, second = capsys.readouterr().err.splitlines()
    assert [f"gw_{api_key.prefix}_…" in line for line in (first, second)] == [True, True]
    assert ["already revoked" in line for line in (first, second)] == [False, True]
    assert find_api_key(token) is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["create_api_key", "nobody", "--name", "ci", "--scope", "export"], "inactive user nobody"),
        (["create_api_key", "ada", "--name", "ci"], "--scope"),
        (["create_api_key", "ada", "--name", "ci", "--scope", "everything"], "invalid choice"),
        (["create_api_key", "ada", "--name", "ci", "--scope", "export", "--days", "-1"], "whole number of days"),
        (["revoke_api_key", "0123456789ab"], "prefix 0123456789ab"),
    ],
)
def test_a_command_that_cannot_be_says_why(command, words):
    make_user(username="ada")
    with pytest.raises(CommandError, match=words):
        call_command(*command)


def test_using_a_key_writes_the_time_at_most_once_a_minute(django_assert_num_queries):
    _, token = create_api_key(user=make_user(), name="busy", scopes=["admin"])
    with django_assert_num_queries(2):
        find_api_key(token)
    with django_assert_num_queries(1):
        find_api_key(token)
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    with django_assert_num_queries(2):
        find_api_key(token)
