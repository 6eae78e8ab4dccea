"""People over the API, for admins in a session."""

import pytest
from django.test import Client

from apps.accounts.models import AuditEntry, Role, User
from tests.api.conftest import client_of
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PEOPLE = "/api/v1/people/"


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(make_user(Role.ADMIN, username="ada"))
    return client


def test_an_invitation_gives_a_link_that_signs_in_once(admin):
    reply = admin.post(PEOPLE, {"username": "nora", "role": "annotator"}, content_type="application/json")
    assert (reply.status_code, reply["Cache-Control"]) == (201, "no-store")
    nora = User.objects.get(username="nora")
    assert (nora.role, nora.has_usable_password()) == ("annotator", False)
    path = reply.json()["link"].removeprefix("http://testserver")
    assert [Client().post(path).status_code for _ in range(2)] == [302, 410]


def test_a_role_is_changed_an_account_closed_and_the_log_says_so(admin):
    person = make_user(Role.VIEWER, username="vera")
    body = {"role": "engineer", "is_active": False}
    changed = admin.patch(f"{PEOPLE}{person.pk}/", body, content_type="application/json").json()
    assert (changed["username"], changed["role"], changed["is_active"]) == ("vera", "engineer", False)
    assert "password" not in changed
    entry = AuditEntry.objects.get(action="user.edit")
    assert (entry.before, entry.after) == ({"role": "viewer", "is_active": True}, body)
    assert admin.post(f"{PEOPLE}{person.pk}/link/").status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"role": "owner"}, "/role"),
        ({"email": "nowhere"}, "/email"),
        ({"password": "swordfish"}, "/password"),
        ({"is_superuser": True}, "/is_superuser"),
    ],
)
def test_what_cannot_be_changed_is_refused_at_its_field(admin, body, pointer):
    person = make_user(Role.VIEWER)
    reply = admin.patch(f"{PEOPLE}{person.pk}/", body, content_type="application/json")
    assert (reply.status_code, [error["pointer"] for error in reply.json()["errors"]]) == (400, [pointer])


def test_the_last_admin_stays(admin):
    ada = User.objects.get(username="ada")
    reply = admin.patch(f"{PEOPLE}{ada.pk}/", {"role": "viewer"}, content_type="application/json")
    assert (reply.status_code, reply.json()["type"]) == (409, "urn:gymweb:problem:last-admin")


def test_no_key_reaches_people():
    reply = client_of(Role.ADMIN).get(PEOPLE)
    assert (reply.status_code, reply.json()["type"]) == (403, "urn:gymweb:problem:missing-scope")
