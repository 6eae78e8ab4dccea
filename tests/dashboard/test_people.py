import re

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Role, User
from tests.factories import make_user

HTMX = {"HX-Request": "true"}


def test_an_invitation_gives_a_link_that_signs_the_person_in_once(admin_pages: Client):
    reply = admin_pages.post(reverse("dashboard:person_create"), {"username": "nora", "email": "", "role": "annotator"})
    assert reply.status_code == 201
    link = re.search(r"http://testserver(/sign-in/[\w-]+/)", reply.text)
    assert link is not None
    nora = User.objects.get(username="nora")
    assert (nora.role, nora.has_usable_password()) == (Role.ANNOTATOR, False)
    browser = Client()
    assert browser.post(link.group(1)).status_code == 302
    assert browser.session["_auth_user_id"] == str(nora.pk)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"username": "admina", "role": "viewer"}, "is taken"),
        ({"username": "no spaces please", "role": "viewer"}, "Enter a valid username"),
        ({"username": "x", "role": "owner"}, "Select a valid choice"),
        ({"username": "x", "role": "viewer", "email": "nowhere"}, "Enter a valid email address"),
    ],
)
def test_an_invitation_that_cannot_be_says_why(admin_pages: Client, sent, words):
    reply = admin_pages.post(reverse("dashboard:person_create"), sent, headers=HTMX)
    assert reply.status_code == 422
    assert words in reply.text
    assert User.objects.count() == 1


def test_a_role_is_changed_and_an_account_closed(admin_pages: Client):
    person = make_user(Role.VIEWER, username="paul", password="a long pass phrase")
    address = reverse("dashboard:person_edit", args=[person.pk])
    reply = admin_pages.post(address, {"email": "p@example.org", "role": "engineer"}, headers=HTMX)
    assert (reply.status_code, reply["HX-Redirect"]) == (200, "/people/")
    person.refresh_from_db()
    assert (person.role, person.is_active, person.email) == (Role.ENGINEER, False, "p@example.org")


def test_the_last_admin_cannot_be_demoted(admin_pages: Client, admin: User):
    address = reverse("dashboard:person_edit", args=[admin.pk])
    reply = admin_pages.post(address, {"email": "", "role": "viewer", "is_active": "on"})
    assert reply.status_code == 422
    assert "last admin" in reply.text
    admin.refresh_from_db()
    assert admin.role == Role.ADMIN


def test_a_new_link_for_another_user_is_shown_once(admin_pages: Client):
    person = make_user(Role.VIEWER, username="paul")
    reply = admin_pages.post(reverse("dashboard:person_link", args=[person.pk]))
    assert reply.status_code == 201
    assert "/sign-in/" in reply.text


def test_a_closed_account_gets_no_link(admin_pages: Client):
    person = make_user(Role.VIEWER, is_active=False)
    assert admin_pages.post(reverse("dashboard:person_link", args=[person.pk])).status_code == 404


def test_people_are_listed_with_their_roles_for_admins_only(admin_pages: Client, pages: Client):
    reply = admin_pages.get(reverse("dashboard:people"))
    assert "erika" in reply.text
    assert "Engineer" in reply.text
    assert pages.get(reverse("dashboard:people")).status_code == 403
    assert reverse("dashboard:people") not in pages.get("/").text


def test_the_list_of_people_takes_the_same_queries_for_one_and_for_many(
    admin_pages: Client, django_assert_max_num_queries
):
    for _ in range(3):
        make_user(Role.VIEWER)
    with django_assert_max_num_queries(6):
        admin_pages.get(reverse("dashboard:people"))
