"""Invitations work once, until they expire, and fix the role."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from apps.accounts.invitations import (
    InvitationAccepted,
    InvitationEnded,
    accept_invitation,
    create_invitation,
    find_invitation,
    revoke_invitation,
)
from apps.accounts.models import AuditEntry, Invitation, Role, User
from apps.accounts.user_accounts import edit_user
from tests.factories import make_user

pytestmark = pytest.mark.django_db
GIVEN = {"username": "ida", "password": "a long enough secret"}


@pytest.fixture
def admin():
    make_user(Role.ADMIN)
    return make_user(Role.ADMIN)


@pytest.fixture
def token(admin):
    return create_invitation(role=Role.ANNOTATOR, email="ida@example.org", by=admin)[1]


def post(client, token, **changes):
    return client.post(f"/invitations/{token}/", {**GIVEN, "again": GIVEN["password"], **changes})


def test_only_a_hash_of_the_token_is_stored(token):
    assert token not in str(list(Invitation.objects.values())) + str(list(AuditEntry.objects.values()))


def test_an_invitation_makes_one_account_with_its_role(token):
    user = accept_invitation(token=token, **GIVEN)
    assert (user.role, user.email, user.check_password(GIVEN["password"])) == ("annotator", "ida@example.org", True)
    with pytest.raises(InvitationEnded):
        accept_invitation(token=token, **{**GIVEN, "username": "eve"})
    assert Invitation.objects.get().accepted_by == user
    assert AuditEntry.objects.get(action="invitation.accept").user == user


def test_the_form_cannot_choose_the_role(client: Client, token):
    assert post(client, token, role="admin", email="eve@example.org", is_active="").status_code == 302
    user = User.objects.get(username="ida")
    assert (user.role, user.email, client.get("/account/").status_code) == ("annotator", "ida@example.org", 200)
    assert user.sessions.get().method == "invitation"


@pytest.mark.parametrize("changes", [{"password": "short"}, {"username": "taken"}, {"username": ""}])
def test_an_invalid_account_does_not_use_up_the_invitation(token, changes):
    make_user(username="taken")
    with pytest.raises(ValidationError):
        accept_invitation(token=token, **{**GIVEN, **changes})
    assert find_invitation(token)


@pytest.mark.parametrize("changes", [{"password": "short", "again": "short"}, {"again": "x"}, {"username": "taken"}])
def test_the_page_names_what_is_wrong(client: Client, token, changes):
    make_user(username="taken")
    reply = post(client, token, **changes)
    assert (reply.status_code, find_invitation(token) is not None) == (422, True)
    assert 'class="errors"' in reply.text


def test_expired_revoked_and_unknown_invitations_say_the_same(client: Client, admin, token):
    expired = create_invitation(role=Role.ADMIN, by=admin)
    Invitation.objects.filter(pk=expired[0].pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    revoked = create_invitation(role=Role.ADMIN, by=admin)
    revoke_invitation(invitation=revoked[0], user=admin)
    seen = {
        (client.get(f"/invitations/{one}/").status_code, post(client, one).status_code)
        for one in (expired[1], revoked[1], "unknown")
    }
    assert (seen, User.objects.filter(username="ida").exists()) == ({(410, 410)}, False)


@pytest.mark.parametrize("change", [{"role": Role.ENGINEER}, {"role": Role.ADMIN, "is_active": False}])
def test_invitations_end_with_the_rights_of_their_admin(admin, token, change):
    edit_user(person=admin, by=None, **change)
    with pytest.raises(InvitationEnded):
        accept_invitation(token=token, **GIVEN)


def test_revoking_twice_is_fine_and_after_accepting_is_refused(admin, token):
    invitation = Invitation.objects.get()
    revoke_invitation(invitation=invitation, user=admin)
    assert revoke_invitation(invitation=invitation, user=admin).state == "revoked"
    accepted, other = create_invitation(role=Role.VIEWER, by=None)
    accept_invitation(token=other, **GIVEN)
    with pytest.raises(InvitationAccepted):
        revoke_invitation(invitation=accepted, user=admin)


def test_opening_the_page_does_not_use_it_up(client: Client, token):
    assert [client.get(f"/invitations/{token}/").status_code for _ in range(2)] == [200, 200]


def test_the_command_prints_a_link(client: Client):
    said = StringIO()
    call_command("invite_user", "--role", "engineer", "--base-url", "https://gym.example.org/", stdout=said)
    link = said.getvalue().strip()
    assert link.startswith("https://gym.example.org/invitations/")
    post(client, link.split("/")[-2])
    assert User.objects.get(username="ida").role == Role.ENGINEER
    with pytest.raises(CommandError):
        call_command("invite_user", "--email", "no address")


def test_the_pages_invite_and_revoke(client: Client, admin):
    client.force_login(admin)
    reply = client.post("/people/invite/", {"role": "viewer", "days": "3", "email": ""})
    assert (reply.status_code, "/invitations/" in reply.text) == (201, True)
    invitation = Invitation.objects.get()
    assert f"/people/invitations/{invitation.pk}/revoke/" in client.get("/people/").text
    client.post(f"/people/invitations/{invitation.pk}/revoke/")
    assert Invitation.objects.get().state == "revoked"
    assert client.post("/people/invite/", {"role": "owner", "days": "0"}).status_code == 422
