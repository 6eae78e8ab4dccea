"""A page answers only the methods it has a rule for, and only to who has the permission."""

import pytest
from django.http import HttpResponse
from django.urls import include, path

from apps.accounts.models import Role
from apps.accounts.permissions import Permission, allow
from tests.factories import make_user

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@allow(GET=Permission.READ, POST=Permission.UPLOAD)
def page(request):
    return HttpResponse("seen")


def page_without_a_rule(request):
    return HttpResponse("leaked")


@allow(GET=Permission.PUBLIC, POST=Permission.ACCOUNTS)
def half_public_page(request):
    return HttpResponse("seen")


urlpatterns = [
    path("page/", page),
    path("forgotten/", page_without_a_rule),
    path("half/", half_public_page),
    # The page that says "forbidden" links to these.
    path("api/", include("apps.api.urls")),
    path("", include("apps.dashboard.urls")),
]


@pytest.mark.parametrize("role", Role.values)
def test_a_page_without_a_rule_is_closed_to_everyone(client, role):
    client.force_login(make_user(role))
    assert client.get("/forgotten/").status_code == 403


@pytest.mark.parametrize(
    ("role", "statuses"),
    [
        ("viewer", [200, 200, 403, 405]),
        ("annotator", [403, 403, 403, 405]),
        ("engineer", [200, 200, 200, 405]),
        ("admin", [200, 200, 200, 405]),
    ],
)
def test_each_method_needs_its_own_permission(client, role, statuses):
    client.force_login(make_user(role))
    asked = [client.get, client.head, client.post, client.delete]
    assert [ask("/page/").status_code for ask in asked] == statuses


def test_a_stranger_is_sent_to_sign_in_and_a_public_method_opens_no_other(client):
    response = client.get("/page/")
    assert (response.status_code, response.url) == (302, "/sign-in/?next=/page/")
    assert client.get("/half/").status_code == 200
    assert client.post("/half/").status_code == 403


def test_the_answer_to_a_method_without_a_rule_names_the_others(client):
    client.force_login(make_user())
    assert client.put("/page/").headers["Allow"] == "GET, POST, HEAD"
