"""Two-factor authentication: a password or a link alone does not pass it, codes work once, guessing is limited."""

import time
from datetime import timedelta

import pyotp
import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import AuditEntry, RecoveryCode, Role, SecondFactor, Tally
from apps.accounts.second_factor.authenticator_codes import (
    CodeRefused,
    FactorUnreadable,
    SecondFactorRefused,
    check_code,
    confirm_setup,
    needs_code,
    read_secret,
    remove_second_factor,
    start_setup,
)
from apps.accounts.second_factor.recovery_codes import CODES, count_recovery_codes, replace_recovery_codes
from apps.accounts.sessions.sign_in_limits import TRIES_PER_NAME
from apps.accounts.sign_in import create_sign_in_link
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough secret"


def code_in(user, steps=0):
    totp = pyotp.TOTP(read_secret(SecondFactor.objects.get(user=user)))
    return totp.at(time.time() + 30 * steps)


@pytest.fixture
def user():
    return make_user(Role.ENGINEER, username="ada", password=PASSWORD)


@pytest.fixture
def codes(user):
    """The recovery codes. The setup has used the code of the step before now."""
    start_setup(user=user)
    return confirm_setup(user=user, code=code_in(user, -1))


def first_step(client):
    return client.post("/sign-in/?next=/agents/", {"username": "ada", "password": PASSWORD})


def is_in(client):
    return client.get("/account/").status_code == 200


def test_secrets_and_codes_are_not_stored_in_the_clear(user, codes):
    stored = SecondFactor.objects.get()
    assert read_secret(stored) not in stored.secret_encrypted
    hashes = str(list(RecoveryCode.objects.values()))
    assert not any(code in hashes or code.replace("-", "") in hashes for code in codes)
    assert (len(set(codes)), AuditEntry.objects.filter(action="second_factor.enable").count()) == (CODES, 1)


def test_the_password_alone_opens_nothing(client: Client, codes):
    reply = first_step(client)
    assert reply["Location"] == "/sign-in/code/?next=%2Fagents%2F"
    assert (is_in(client), client.get("/api/v1/me/").status_code) == (False, 401)


def test_password_and_code_open_the_requested_page(client: Client, user, codes):
    address = first_step(client)["Location"]
    reply = client.post(address, {"code": code_in(user), "next": "/agents/"})
    assert reply["Location"] == "/agents/"
    assert is_in(client)
    user.refresh_from_db()
    assert user.sessions.get().method == "password"


def test_the_second_step_needs_the_first(client: Client, user, codes):
    assert client.post("/sign-in/code/", {"code": code_in(user)})["Location"] == "/sign-in/"
    first_step(client)
    user.set_password("quite another secret")
    user.save()
    assert client.post("/sign-in/code/", {"code": code_in(user)})["Location"] == "/sign-in/"
    client.cookies["sign_in_step"] = "1:password:x"
    assert client.post("/sign-in/code/", {"code": code_in(user)})["Location"] == "/sign-in/"
    assert not is_in(client)


def test_the_first_step_ends_with_the_account_and_with_the_sign_in(client: Client, user, codes):
    first_step(client)
    stolen = client.cookies["sign_in_step"].value
    client.post("/sign-in/code/", {"code": code_in(user)})
    thief = Client()
    thief.cookies["sign_in_step"] = stolen
    assert thief.get("/sign-in/code/").status_code == 302
    other = Client()
    first_step(other)
    user.is_active = False
    user.save()
    assert other.get("/sign-in/code/").status_code == 302


def test_a_code_works_once(user, codes):
    code = code_in(user)
    check_code(user=user, code=f" {code[:3]} {code[3:]} ")
    with pytest.raises(CodeRefused):
        check_code(user=user, code=code)
    # Nor does an earlier one, which may have been seen.
    with pytest.raises(CodeRefused):
        check_code(user=user, code=code_in(user, -1))
    check_code(user=user, code=code_in(user, 1))


@pytest.mark.parametrize("code", ["", "000000 ", "١٢٣٤٥٦", "12345", "abcdef", "\x00", "x" * 64])
def test_other_codes_are_refused(user, codes, code):
    with pytest.raises(CodeRefused):
        check_code(user=user, code=code)


@pytest.mark.parametrize("steps", [-3, 3])
def test_codes_of_other_times_are_refused(user, codes, steps):
    with pytest.raises(CodeRefused):
        check_code(user=user, code=code_in(user, steps))


def test_a_recovery_code_works_once_in_any_case_and_with_or_without_hyphens(user, codes):
    check_code(user=user, code=codes[0].upper())
    with pytest.raises(CodeRefused):
        check_code(user=user, code=codes[0].replace("-", ""))
    check_code(user=user, code=codes[1].replace("-", " "))
    assert count_recovery_codes(user) == CODES - 2


def test_a_recovery_code_of_another_user_is_refused(user, codes):
    other = make_user(password=PASSWORD)
    start_setup(user=other)
    confirm_setup(user=other, code=code_in(other))
    with pytest.raises(CodeRefused):
        check_code(user=other, code=codes[0])


def test_new_recovery_codes_replace_the_old_ones(user, codes):
    new = replace_recovery_codes(user=user)
    with pytest.raises(CodeRefused):
        check_code(user=user, code=codes[0])
    check_code(user=user, code=new[0])


def test_guessing_codes_is_limited_even_for_the_right_code(client: Client, user, codes):
    first_step(client)
    for _ in range(TRIES_PER_NAME):
        assert client.post("/sign-in/code/", {"code": "000000"}).status_code == 422
    reply = client.post("/sign-in/code/", {"code": code_in(user)})
    assert (reply.status_code, "Retry-After" in reply) == (429, True)
    # The right password does not reset the count.
    first_step(client)
    assert client.post("/sign-in/code/", {"code": codes[0]}).status_code == 429
    assert not is_in(client)
    assert AuditEntry.objects.filter(action="second_factor.refuse").count() == TRIES_PER_NAME


def test_guessing_from_many_networks_is_limited(user, codes):
    refused = []
    for number in range(30):
        client = Client(REMOTE_ADDR=f"192.0.2.{number}")
        first_step(client)
        refused.append(client.post("/sign-in/code/", {"code": "000000"}).status_code)
    assert set(refused[:20]) == {422}
    assert 429 in refused[20:]


def test_a_sign_in_link_replaces_the_password_only(client: Client, user, codes):
    reply = client.post(f"/sign-in/{create_sign_in_link(user=user)}/")
    assert reply["Location"].startswith("/sign-in/code/")
    assert not is_in(client)
    client.post(reply["Location"], {"code": code_in(user)})
    assert is_in(client)


def test_an_unconfirmed_app_changes_nothing(client: Client, user):
    start_setup(user=user)
    assert first_step(client)["Location"] == "/agents/"
    with pytest.raises(CodeRefused):
        confirm_setup(user=user, code="000000")
    assert not needs_code(user)


def test_setup_needs_a_password_and_no_app(user, codes):
    for one in (user, make_user()):
        with pytest.raises(SecondFactorRefused):
            start_setup(user=one)


def test_an_open_browser_alone_changes_nothing(client: Client, user):
    client.force_login(user)
    assert client.post("/account/two-factor/start/", {"password": "wrong"}).status_code == 422
    assert not SecondFactor.objects.exists()
    start_setup(user=user)
    confirm_setup(user=user, code=code_in(user))
    for path, field in (("remove", "remove-code"), ("codes", "replace-code")):
        assert client.post(f"/account/two-factor/{path}/", {field: "000000"}).status_code == 422
    assert needs_code(user)


def test_an_app_is_set_up_and_removed_on_the_page(client: Client, user):
    client.force_login(user)
    assert client.post("/account/two-factor/start/", {"password": PASSWORD}).status_code == 302
    page = client.get("/account/two-factor/")
    assert "data:image/svg+xml" in page.text
    assert "no-store" in page["Cache-Control"]
    reply = client.post("/account/two-factor/", {"code": code_in(user)})
    assert (reply.status_code, needs_code(user)) == (201, True)
    shown = client.get("/account/two-factor/").text
    assert read_secret(SecondFactor.objects.get())[:4] not in shown
    client.post("/account/two-factor/remove/", {"remove-code": code_in(user, 1)})
    assert (needs_code(user), RecoveryCode.objects.count()) == (False, 0)


def test_an_admin_and_the_operator_turn_it_off(client: Client, user, codes):
    client.force_login(make_user(Role.ADMIN))
    client.post(f"/people/{user.pk}/two-factor/remove/")
    assert (needs_code(user), AuditEntry.objects.filter(action="second_factor.remove").count()) == (False, 1)
    start_setup(user=user)
    confirm_setup(user=user, code=code_in(user))
    call_command("remove_second_factor", "ada")
    assert not needs_code(user)
    assert remove_second_factor(user=user, by=None) is False


def test_another_secret_key_refuses_codes_but_not_the_request(client: Client, user, codes, settings):
    settings.SECRET_KEY = "another key of at least thirty-two characters"
    with pytest.raises(FactorUnreadable):
        check_code(user=user, code="123456")
    first_step(client)
    assert client.post("/sign-in/code/", {"code": "123456"}).status_code == 422


def test_the_first_step_is_limited_in_time(client: Client, user, codes, monkeypatch):
    first_step(client)
    monkeypatch.setattr("django.core.signing.time.time", lambda: time.monotonic() + timezone.now().timestamp() + 700)
    assert client.get("/sign-in/code/").status_code == 302


def test_counts_of_codes_end(client: Client, user, codes):
    first_step(client)
    for _ in range(TRIES_PER_NAME + 1):
        client.post("/sign-in/code/", {"code": "000000"})
    Tally.objects.update(ends_at=int((timezone.now() - timedelta(seconds=1)).timestamp()))
    client.post("/sign-in/code/", {"code": code_in(user)})
    assert is_in(client)


@pytest.mark.parametrize("way", ["page", "API"])
def test_admins_need_a_code_to_turn_it_off_for_themselves(client, user, codes, way):
    user.role = Role.ADMIN
    user.save()
    client.force_login(user)
    button = reverse("dashboard:person_factor_remove", args=[user.pk])
    url, status = (button, 302) if way == "page" else (f"/api/v1/people/{user.pk}/remove_second_factor/", 409)
    assert client.post(url).status_code == status
    assert needs_code(user)
    assert button not in client.get(f"/people/{user.pk}/").text


def test_turning_it_on_ends_other_sessions(client, user):
    stolen = Client()
    for one in (client, stolen):
        first_step(one)
    client.post("/account/two-factor/start/", {"password": PASSWORD})
    assert client.post("/account/two-factor/", {"code": code_in(user)}).status_code == 201
    assert (is_in(client), is_in(stolen)) == (True, False)


def test_a_setup_expires(client, user):
    client.force_login(user)
    secret = read_secret(start_setup(user=user))
    SecondFactor.objects.update(created_at=timezone.now() - timedelta(minutes=16))
    page = client.get("/account/two-factor/").text
    assert (secret[:4] in page, "qr-code" in page) == (False, False)
    with pytest.raises(SecondFactorRefused):
        confirm_setup(user=user, code=code_in(user))
    start_setup(user=user)
    assert confirm_setup(user=user, code=code_in(user))


@pytest.mark.parametrize("page", ["/account/two-factor/start/", "/account/"])
def test_guesses_of_the_current_password_are_limited(client, user, page):
    client.force_login(user)
    new = {"again": "another long secret"}
    new["password"] = new["again"]
    name = "current" if page == "/account/" else "password"
    statuses = [client.post(page, {**new, name: "a wrong guess"}).status_code for _ in range(TRIES_PER_NAME + 1)]
    assert statuses == [422] * TRIES_PER_NAME + [429]
    assert client.post(page, {**new, name: PASSWORD}).status_code == 429
    # They do not delay sign-ins.
    assert first_step(Client()).status_code == 302
