"""API keys: shown once, kept as a hash, usable until revoked or expired."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.keys import NotYourKey, create_api_key, find_api_key, revoke_api_key
from apps.accounts.models import ApiKey, AuditEntry, Role
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def test_a_new_key_is_found_by_its_token_and_its_secret_is_nowhere_in_the_database():
    user = make_user()
    api_key, token = create_api_key(user=user, name="laptop")
    secret = token.split("_", 2)[2]
    row = ApiKey.objects.values().get()
    assert find_api_key(token) == api_key
    assert token.startswith(f"gw_{api_key.prefix}_")
    assert not [field for field, value in row.items() if secret in str(value)]
    assert secret not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize("token", ["", "gw", "gw_", "gw_x", "gw__", "xx_{prefix}_{secret}", "gw_{prefix}_wrong", "_"])
def test_no_other_token_finds_a_key(token):
    _, good = create_api_key(user=make_user(), name="laptop")
    _, prefix, secret = good.split("_", 2)
    assert find_api_key(token.format(prefix=prefix, secret=secret)) is None


def test_an_expired_key_a_revoked_key_and_the_key_of_a_closed_account_are_refused():
    user = make_user()
    _, expired_token = create_api_key(user=user, name="old", expires_at=timezone.now() - timedelta(seconds=1))
    revoked, revoked_token = create_api_key(user=user, name="lost")
    closed = make_user(is_active=False)
    _, closed_token = create_api_key(user=closed, name="closed")
    revoke_api_key(api_key=revoked, user=user)
    assert [find_api_key(token) for token in (expired_token, revoked_token, closed_token)] == [None, None, None]


def test_only_its_owner_or_an_admin_revokes_a_key():
    owner, other, admin = make_user(), make_user(), make_user(Role.ADMIN)
    first, _ = create_api_key(user=owner, name="first")
    second, _ = create_api_key(user=owner, name="second")
    with pytest.raises(NotYourKey):
        revoke_api_key(api_key=first, user=other)
    revoke_api_key(api_key=first, user=owner)
    revoke_api_key(api_key=second, user=admin)
    assert not ApiKey.objects.usable().exists()


def test_using_a_key_writes_the_time_at_most_once_a_minute(django_assert_num_queries):
    _, token = create_api_key(user=make_user(), name="busy")
    with django_assert_num_queries(2):
        find_api_key(token)
    with django_assert_num_queries(1):
        find_api_key(token)
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    with django_assert_num_queries(2):
        find_api_key(token)
