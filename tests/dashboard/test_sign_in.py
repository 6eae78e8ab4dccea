import hashlib
import re

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Role, User
from apps.accounts.sign_in import create_sign_in_link
from tests.dashboard.markup import read
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough pass phrase"


def test_a_stranger_is_sent_to_sign_in_and_back(client: Client):
    make_user(username="ada", password=PASSWORD)
    gate = client.get(reverse("dashboard:account"))
    assert gate.status_code == 302
    page = client.get(gate["Location"])
    assert page.status_code == 200
    assert 'name="next" value="/account/"' in page.text
    done = client.post(gate["Location"], {"username": "ada", "password": PASSWORD, "next": "/account/"})
    assert (done.status_code, done["Location"]) == (302, "/account/")
    assert client.get("/account/").status_code == 200


@pytest.mark.parametrize(("username", "password"), [("ada", "wrong"), ("nobody", PASSWORD)])
def test_wrong_names_and_wrong_passwords_get_the_same_words(client: Client, username: str, password: str):
    make_user(username="ada", password=PASSWORD)
    page = client.post(reverse("dashboard:sign_in"), {"username": username, "password": password})
    assert page.status_code == 422
    assert "do not match" in page.text
    assert "_auth_user_id" not in client.session


def test_too_many_tries_are_refused_with_a_time_to_wait(client: Client):
    make_user(username="ada", password=PASSWORD)
    for _ in range(10):
        client.post(reverse("dashboard:sign_in"), {"username": "ada", "password": "wrong"})
    page = client.post(reverse("dashboard:sign_in"), {"username": "ada", "password": PASSWORD})
    assert page.status_code == 429
    assert 800 <= int(page["Retry-After"]) <= 900
    assert "_auth_user_id" not in client.session


START_PAGES = [(Role.VIEWER, "/"), (Role.ANNOTATOR, "/queues/"), (Role.ENGINEER, "/"), (Role.ADMIN, "/")]
ELSEWHERE = [
    "https://evil.example/",
    "//evil.example/",
    "///evil.example/",
    "/\\evil.example/",
    "\\\\evil.example/",
    "/\t/evil.example/",
    "/\n/evil.example/",
    "\x01//evil.example/",
    "\x1b//evil.example/",
    " //evil.example/",
    "http:evil.example",
    "http:///evil.example/",
    "https://testserver@evil.example/",
    "http://testserver//evil.example/",
    "javascript:alert(1)",
    "queues/",
]


def link_for(user: User) -> str:
    return reverse("dashboard:sign_in_link", args=[create_sign_in_link(user=user)])


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_signing_in_never_leads_to_another_site(client: Client, elsewhere: str):
    user = make_user(username="ada", password=PASSWORD)
    done = client.post(reverse("dashboard:sign_in"), {"username": "ada", "password": PASSWORD, "next": elsewhere})
    assert done["Location"] == "/"
    signed_in = client.get(reverse("dashboard:sign_in"), {"next": elsewhere})
    assert (signed_in.status_code, signed_in["Location"]) == (302, "/")
    for sent in ({"query_params": {"next": elsewhere}}, {"data": {"next": elsewhere}}):
        assert Client().post(link_for(user), **sent)["Location"] == "/"
    client.logout()
    client.cookies["next_page"] = "/x"
    client.cookies["next_page"].set("next_page", elsewhere, elsewhere)
    assert client.post(link_for(user))["Location"] == "/"


@pytest.mark.parametrize(("role", "page"), START_PAGES)
@pytest.mark.parametrize("has_password", [True, False])
def test_a_sign_in_link_leads_to_the_start_page_of_the_role(client: Client, role: str, page: str, has_password: bool):
    user = make_user(role, password=PASSWORD if has_password else None)
    assert client.post(link_for(user))["Location"] == page
    assert client.get(page).status_code == 200


@pytest.mark.parametrize(("role", "page"), START_PAGES)
def test_a_password_leads_to_the_start_page_of_the_role(client: Client, role: str, page: str):
    make_user(role, username="ada", password=PASSWORD)
    for asked in ({}, {"next": ""}, {"next": "/"}):
        signing = {"username": "ada", "password": PASSWORD, **asked}
        assert Client().post(reverse("dashboard:sign_in"), signing)["Location"] == page
    client.post(reverse("dashboard:sign_in"), signing)
    assert client.get(reverse("dashboard:sign_in"))["Location"] == page


def test_a_sign_in_link_can_name_the_page_that_it_opens(client: Client):
    address = f"{link_for(make_user(Role.ANNOTATOR))}?next=/rubrics/%3Fa%3Db"
    form = read(client.get(address).text)
    named = [field.attributes["value"] for field in form.all("input") if field.attributes.get("name") == "next"]
    assert named == ["/rubrics/?a=b"]
    assert client.post(address)["Location"] == "/rubrics/?a=b"


def test_a_link_leads_to_the_page_that_was_asked_for_before_signing_in(client: Client):
    user = make_user(Role.ANNOTATOR)
    client.get(client.get("/rubrics/?q=%C3%A9;b")["Location"])
    address = link_for(user)
    client.get(address)
    assert client.post(address)["Location"] == "/rubrics/?q=%C3%A9;b"
    client.post(reverse("dashboard:sign_out"))
    assert client.post(link_for(user))["Location"] == "/queues/"


def test_a_link_that_no_longer_works_leads_to_the_password_and_then_to_the_page(client: Client):
    page = client.get(reverse("dashboard:sign_in_link", args=["never-made"]), {"next": "/rubrics/"})
    assert "/sign-in/?next=/rubrics/" in [one.attributes["href"] for one in read(page.text).all("a")]


def test_opening_a_sign_in_link_does_not_use_it_up(client: Client):
    address = reverse("dashboard:sign_in_link", args=[create_sign_in_link(user=make_user())])
    for _ in range(2):
        assert client.get(address).status_code == 200
    assert "_auth_user_id" not in client.session
    assert client.post(address).status_code == 302
    assert "_auth_user_id" in client.session


def test_head_on_a_sign_in_link_answers_as_get_does_and_does_not_use_it_up(client: Client):
    address = reverse("dashboard:sign_in_link", args=[create_sign_in_link(user=make_user())])
    for _ in range(2):
        told = client.head(address)
        assert (told.status_code, told.content) == (200, b"")
    assert client.post(address).status_code == 302
    assert [Client().head(address).status_code, Client().get(address).status_code] == [410, 410]


def test_a_sign_in_link_works_once(client: Client):
    address = reverse("dashboard:sign_in_link", args=[create_sign_in_link(user=make_user())])
    client.post(address)
    again = Client().post(address)
    assert again.status_code == 410
    assert "no longer works" in again.text


def test_a_link_that_would_fail_says_so_before_anything_is_pressed(client: Client):
    spent, expired, closed = (
        create_sign_in_link(user=make_user(), minutes=0 if name == "expired" else 60)
        for name in ("spent", "expired", "closed")
    )
    client.post(reverse("dashboard:sign_in_link", args=[spent]))
    User.objects.filter(sign_in_links__token_hash=hashlib.sha256(closed.encode()).hexdigest()).update(is_active=False)
    answers = []
    for token in (spent, expired, closed, "never-made"):
        page = Client().get(reverse("dashboard:sign_in_link", args=[token]))
        answers.append((page.status_code, page.text.partition("<main")[2]))
    assert [status for status, _ in answers] == [410] * 4
    # The four read the same, so nobody learns whose link it was or what became of it.
    assert (
        len({re.sub(r'(?<=name="csrfmiddlewaretoken" value=")\w+|/sign-in/[^"]+', "", text) for _, text in answers})
        == 1
    )
    assert "Ask an admin for a new one" in answers[0][1]


@pytest.mark.parametrize("has_password", [True, False])
def test_users_without_a_password_are_offered_to_set_one(client: Client, has_password: bool):
    landed = client.post(link_for(make_user(password=PASSWORD if has_password else None)), follow=True)
    offers = [one for one in read(landed.text).all("a") if one.text == "Set a password"]
    assert [one.attributes["href"] for one in offers] == ([] if has_password else ["/account/#password"])


def test_signing_out_needs_a_post(client: Client):
    client.force_login(make_user(Role.VIEWER))
    assert client.get(reverse("dashboard:sign_out")).status_code == 405
    assert "_auth_user_id" in client.session
    assert client.post(reverse("dashboard:sign_out")).status_code == 302
    assert "_auth_user_id" not in client.session


def test_an_ended_session_makes_htmx_leave_the_page_and_come_back_to_it(client: Client):
    reply = client.get(
        reverse("dashboard:sign_in") + "?next=/a/fragment/",
        headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/account/"},
    )
    assert reply["HX-Redirect"] == "/sign-in/?next=%2Faccount%2F"


def test_the_theme_is_in_the_first_byte_of_the_page(client: Client):
    assert 'data-theme="system"' in client.get(reverse("dashboard:sign_in")).text
    client.post(reverse("dashboard:theme"), {"theme": "dark", "next": "/sign-in/"})
    assert 'data-theme="dark"' in client.get(reverse("dashboard:sign_in")).text


def test_an_unknown_theme_is_not_kept(client: Client):
    client.post(reverse("dashboard:theme"), {"theme": '"><script>'})
    assert "theme" not in client.cookies
    client.cookies["theme"] = '"><script>'
    assert 'data-theme="system"' in client.get(reverse("dashboard:sign_in")).text


@pytest.mark.parametrize(
    ("sent_from", "back"),
    [
        ("http://testserver/rollouts/7/?list=q%3Dreward%3A1", "/rollouts/7/?list=q%3Dreward%3A1"),
        ("http://testserver/rollouts/7/comments/", "/rollouts/7/"),
        ("", "/rollouts/7/"),
        ("https://evil.example/rollouts/7/", "/rollouts/7/"),
        ("http://testserver//evil.example/", "/rollouts/7/"),
        ("http://testserver/\\evil.example/", "/rollouts/7/"),
    ],
)
def test_a_form_sent_after_the_session_ended_leads_back_to_its_page(client: Client, sent_from: str, back: str):
    make_user(username="ada", password=PASSWORD)
    gate = client.post("/rollouts/7/comments/", {"text": "Wrong sign."}, headers={"Referer": sent_from})
    assert gate.status_code == 302
    page = client.get(gate["Location"])
    assert page.context["next"] == back
    assert "your changes were not saved" in page.text
    signing = {"username": "ada", "password": PASSWORD, "next": page.context["next"]}
    assert client.post(gate["Location"], signing)["Location"] == back


def test_a_post_only_url_leads_to_its_parent_page(client: Client):
    make_user(username="ada", password=PASSWORD)
    signing = {"username": "ada", "password": PASSWORD}
    for wanted, back in (("/rollouts/7/comments/", "/rollouts/7/"), ("/rollouts/?q=a", "/rollouts/?q=a")):
        assert Client().post(reverse("dashboard:sign_in"), {**signing, "next": wanted})["Location"] == back


def test_a_part_asked_for_after_the_session_had_ended_leads_back_with_the_filter(client: Client):
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/rollouts/?q=reward%3A%3E0&sort=-reward"}
    told = client.get(client.get("/rollouts/?sort=id", headers=headers)["Location"], headers=headers)
    assert client.get(told["HX-Redirect"]).context["next"] == "/rollouts/?q=reward%3A%3E0&sort=-reward"
    assert "your changes were not saved" not in client.get(told["HX-Redirect"]).text
    sent = client.get(client.post("/rollouts/7/comments/", {"text": "a"}, headers=headers)["Location"], headers=headers)
    assert "your changes were not saved" in client.get(sent["HX-Redirect"]).text
