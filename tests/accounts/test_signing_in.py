"""Signing in by password is throttled and says nothing; a link works once."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.client_address import client_address
from apps.accounts.models import AuditEntry, Role, SignInLink
from apps.accounts.sessions import sign_in_limits
from apps.accounts.sessions.browser_sessions import end_sessions_of
from apps.accounts.sign_in import (
    SignInRefused,
    TooManyTries,
    create_sign_in_link,
    is_open,
    redeem_sign_in_link,
    sign_in_with_password,
)
from apps.accounts.user_accounts import change_password, edit_user
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def test_the_right_password_gives_the_user(rf):
    user = make_user(password="a long enough secret")
    found = sign_in_with_password(request=rf.post("/"), username=user.username, password="a long enough secret")
    assert found == user
    assert AuditEntry.objects.get().action == "sign_in.password"


def test_a_wrong_name_a_wrong_password_and_a_closed_account_say_the_same(rf):
    user = make_user(password="a long enough secret")
    closed = make_user(password="a long enough secret", is_active=False)
    said = set()
    for name, password in [
        (user.username, "wrong"),
        ("nobody", "a long enough secret"),
        (closed.username, "a long enough secret"),
    ]:
        with pytest.raises(SignInRefused) as refused:
            sign_in_with_password(request=rf.post("/"), username=name, password=password)
        said.add((type(refused.value), str(refused.value)))
    # The same refusal for each, so that nobody learns which names exist.
    [(kind, message)] = said
    assert (kind, "do not match" in message) == (SignInRefused, True)


def test_after_too_many_tries_even_the_right_password_is_refused_but_not_from_elsewhere(rf):
    user = make_user(password="a long enough secret")
    for _ in range(sign_in_limits.TRIES_PER_NAME):
        with pytest.raises(SignInRefused):
            sign_in_with_password(request=rf.post("/"), username=user.username, password="wrong")
    with pytest.raises(TooManyTries):
        sign_in_with_password(request=rf.post("/"), username=user.username.upper(), password="a long enough secret")
    elsewhere = rf.post("/", REMOTE_ADDR="192.0.2.7")
    assert sign_in_with_password(request=elsewhere, username=user.username, password="a long enough secret") == user


def test_one_address_cannot_try_many_names(rf):
    for number in range(sign_in_limits.TRIES_PER_ADDRESS):
        with pytest.raises(SignInRefused):
            sign_in_with_password(request=rf.post("/"), username=f"name{number}", password="wrong")
    with pytest.raises(TooManyTries):
        sign_in_with_password(request=rf.post("/"), username="another", password="wrong")


def test_a_link_signs_in_once_and_its_token_is_not_stored():
    user = make_user()
    token = create_sign_in_link(user=user)
    assert token not in str(list(SignInLink.objects.values()))
    assert [redeem_sign_in_link(token), redeem_sign_in_link(token)] == [user, None]


def test_expired_unknown_and_closed_account_links_are_refused():
    expired = create_sign_in_link(user=make_user())
    SignInLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    closed = create_sign_in_link(user=make_user(is_active=False))
    assert [redeem_sign_in_link(token) for token in (expired, closed, "unknown", "")] == [None] * 4


def test_people_who_get_in_do_not_use_up_the_tries_of_their_address(rf):
    user = make_user(password="a long enough secret")
    for _ in range(sign_in_limits.TRIES_PER_ADDRESS + 1):
        found = sign_in_with_password(request=rf.post("/"), username=user.username, password="a long enough secret")
        assert found == user


def fail_to_sign_in(request, *, times):
    for number in range(times):
        with pytest.raises(SignInRefused):
            sign_in_with_password(request=request, username=f"name{number}", password="wrong")


def test_behind_an_untrusted_proxy_a_stranger_cannot_lock_users_out(rf, settings):
    settings.SECURE = True
    user = make_user(password="a long enough secret")
    fail_to_sign_in(rf.post("/"), times=sign_in_limits.TRIES_PER_ADDRESS)
    assert sign_in_with_password(request=rf.post("/"), username=user.username, password="a long enough secret") == user


def test_behind_trusted_proxies_each_client_has_its_own_tries(rf, settings):
    settings.SECURE, settings.TRUSTED_PROXIES = True, 2
    user = make_user(password="a long enough secret")
    stranger = rf.post("/", headers={"X-Forwarded-For": "198.51.100.9, 192.0.2.7, 10.0.0.2"})
    fail_to_sign_in(stranger, times=sign_in_limits.TRIES_PER_ADDRESS)
    disguised = rf.post("/", headers={"X-Forwarded-For": "203.0.113.1, 192.0.2.7, 10.0.0.2"})
    with pytest.raises(TooManyTries):
        sign_in_with_password(request=disguised, username=user.username, password="a long enough secret")
    other = rf.post("/", headers={"X-Forwarded-For": "192.0.2.7, 192.0.2.8, 10.0.0.2"})
    assert sign_in_with_password(request=other, username=user.username, password="a long enough secret") == user
    assert AuditEntry.objects.get(action="sign_in.password").address == "192.0.2.8"


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        (0, "192.0.2.7", "127.0.0.1"),
        (1, "198.51.100.9, 192.0.2.7", "192.0.2.7"),
        (2, "192.0.2.7", "192.0.2.7"),
        (1, "", "127.0.0.1"),
        (1, " , ", "127.0.0.1"),
    ],
)
def test_the_address_is_what_the_trusted_proxies_saw(rf, settings, proxies, forwarded, address):
    settings.TRUSTED_PROXIES = proxies
    assert client_address(rf.post("/", headers={"X-Forwarded-For": forwarded})) == address


@pytest.mark.parametrize("end", ["new password", "all sessions ended", "creator demoted", "creator deactivated"])
def test_an_unused_link_ends_with_the_reason_for_it(client, end):
    admin, other, user = make_user(Role.ADMIN), make_user(Role.ADMIN), make_user()
    used = create_sign_in_link(user=user, by=admin)
    assert redeem_sign_in_link(used) == user
    token = create_sign_in_link(user=user, by=admin)
    assert is_open(token)
    if end == "new password":
        change_password(person=user, password="another long secret", by=user)
    elif end == "all sessions ended":
        end_sessions_of(person=user, by=user)
    else:
        edit_user(
            person=admin,
            role=Role.ENGINEER if end == "creator demoted" else Role.ADMIN,
            by=other,
            is_active=end == "creator demoted",
        )
    assert not is_open(token)
    assert redeem_sign_in_link(token) is None
    assert SignInLink.objects.filter(used_at__isnull=False).count() == 1


def test_the_audit_log_does_not_store_typed_names_of_unknown_accounts(rf):
    user = make_user(username="ada", password="a long enough secret")
    for name in ("my password", "my password", "other", "ADA"):
        with pytest.raises(SignInRefused):
            sign_in_with_password(request=rf.post("/"), username=name, password="wrong")
    entries = list(AuditEntry.objects.filter(action="sign_in.refuse").order_by("id"))
    assert [entry.target for entry in entries] == ["unknown user"] * 3 + [user.username]
    assert "my password" not in str([entry.detail for entry in entries])
    first, second, other = (entry.detail["typed_name"] for entry in entries[:3])
    assert (first == second, first == other) == (True, False)
