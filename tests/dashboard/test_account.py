import re
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.api_keys import create_api_key, find_api_key, revoke_api_key
from apps.accounts.models import ApiKey, AuditEntry, Role, User
from tests.dashboard.markup import read
from tests.factories import make_user

HTMX = {"HX-Request": "true"}
KEY = {"key-name": "mine", "key-days": "30", "key-scopes": ["rollouts:read"]}
OLD, NEW = "an old pass phrase", "quite another pass phrase"


@pytest.fixture
def owner(db: None) -> User:
    return make_user(Role.VIEWER, username="olga", password=OLD)


@pytest.fixture
def browser(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


def test_a_password_is_changed_by_who_knows_the_old_one(browser: Client, owner: User):
    reply = browser.post(reverse("dashboard:account"), {"current": OLD, "password": NEW, "again": NEW})
    assert (reply.status_code, reply["Location"]) == (302, "/account/")
    owner.refresh_from_db()
    assert owner.check_password(NEW)
    page = browser.get("/account/")
    assert page.status_code == 200  # this session goes on
    assert "password is changed" in page.text


def test_the_side_menu_marks_one_entry_on_the_account_page(browser: Client):
    nav = browser.get("/account/").text.partition('<nav class="nav"')[2].partition("</nav>")[0]
    assert nav.count('aria-current="page"') == 1


def make_keys(owner: User) -> dict[str, ApiKey]:
    """Two keys that work, one that expired, one that is revoked, and one of another user."""
    past = timezone.now() - timedelta(days=1)
    owners = {"one": owner, "two": owner, "expired": owner, "revoked": owner, "other": make_user(Role.VIEWER)}
    keys = {name: create_api_key(user=user, name=name, scopes=["rollouts:read"])[0] for name, user in owners.items()}
    ApiKey.objects.filter(name="expired").update(expires_at=past)
    revoke_api_key(api_key=keys["revoked"], user=owner)
    return keys


def usable_keys() -> set[str]:
    return set(ApiKey.objects.usable().values_list("name", flat=True))


def revoke_boxes(page: str) -> list[dict[str, str]]:
    return [each.attributes for each in read(page).all("input") if each.attributes.get("name") == "revoke_keys"]


@pytest.mark.parametrize("has_password", [True, False])
def test_a_new_password_offers_to_revoke_the_active_api_keys(browser: Client, owner: User, has_password: bool):
    if not has_password:
        owner.set_unusable_password()
        owner.save()
        browser.force_login(owner)
    assert revoke_boxes(browser.get("/account/").text) == []
    make_keys(owner)
    page = browser.get("/account/").text
    assert ["checked" in box for box in revoke_boxes(page)] == [True]
    assert "my 2 active API keys" in page


def test_a_new_password_revokes_the_api_keys_of_its_user_when_the_box_is_checked(browser: Client, owner: User):
    keys = make_keys(owner)
    AuditEntry.objects.all().delete()
    sent = {"current": OLD, "password": NEW, "again": NEW, "revoke_keys": "on"}
    page = browser.post(reverse("dashboard:account"), sent, follow=True).text
    assert "2 API keys are revoked" in page
    assert usable_keys() == {"other"}
    said = [(each.action, each.target, each.user) for each in AuditEntry.objects.order_by("target")]
    assert said == [
        ("user.change_password", "olga", owner),
        *(("api_key.revoke", str(keys[name]), owner) for name in ("one", "two")),
    ]
    assert AuditEntry.objects.get(action="user.change_password").detail == {"revoked_keys": 2}


def test_a_new_password_keeps_the_api_keys_when_the_box_is_cleared(browser: Client, owner: User):
    make_keys(owner)
    sent = {"current": OLD, "password": NEW, "again": NEW}
    page = browser.post(reverse("dashboard:account"), sent, follow=True).text
    assert "revoked." not in page
    assert usable_keys() == {"one", "two", "other"}


def test_a_refused_password_revokes_nothing_and_keeps_the_choice(browser: Client, owner: User):
    make_keys(owner)
    sent = {"current": OLD, "password": "short", "again": "short"}
    for choice, checked in (({"revoke_keys": "on"}, True), ({}, False)):
        reply = browser.post(reverse("dashboard:account"), sent | choice, headers=HTMX)
        assert (reply.status_code, ["checked" in box for box in revoke_boxes(reply.text)]) == (422, [checked])
    assert usable_keys() == {"one", "two", "other"}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"current": "wrong", "password": NEW, "again": NEW}, "not your current password"),
        ({"current": OLD, "password": NEW, "again": "differs"}, "new passwords differ"),
        ({"current": OLD, "password": "short", "again": "short"}, "password is too short"),
        ({"current": OLD, "password": "", "again": ""}, "field is required"),
    ],
)
def test_a_password_that_cannot_be_is_refused_beside_its_field(browser: Client, owner: User, sent, words):
    reply = browser.post(reverse("dashboard:account"), sent, headers=HTMX)
    assert reply.status_code == 422
    assert words in reply.text
    assert "<html" not in reply.text
    assert [field.attributes.get("value") for field in read(reply.text).all("input")[1:]] == [None, None, None]
    owner.refresh_from_db()
    assert owner.check_password(OLD)


def test_who_came_by_a_link_sets_a_password_without_an_old_one(db: None):
    person = make_user(Role.VIEWER, username="nina")
    person.set_unusable_password()
    person.save()
    client = Client()
    client.force_login(person)
    assert "Current password" not in client.get("/account/").text
    client.post("/account/", {"password": NEW, "again": NEW})
    assert "password is set" in client.get("/account/").text
    person.refresh_from_db()
    assert person.check_password(NEW)


def test_a_key_is_shown_once_and_works(browser: Client, owner: User):
    reply = browser.post(reverse("dashboard:key_create"), KEY | {"key-name": "cluster"}, headers=HTMX)
    assert reply.status_code == 201
    token = re.search(r"gw_[0-9a-f]+_[\w-]{20,}", reply.text)
    assert token is not None
    found = find_api_key(token.group())
    assert found is not None
    assert (found.user, found.name, found.scopes) == (owner, "cluster", ["rollouts:read"])
    assert found.expires_at is not None
    assert token.group() not in browser.get("/account/").text
    assert "no-store" in reply["Cache-Control"]


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.VIEWER, "lets a script read tasks, rollouts and rewards on your behalf"),
        (Role.ANNOTATOR, "lets a script get items from your queues and submit reviews on your behalf"),
        (Role.ENGINEER, "lets a script upload tasks, plan collections and fetch exports on your behalf"),
    ],
)
def test_a_key_promises_no_more_than_the_role_may(db: None, role: str, may: str):
    client = Client()
    client.force_login(make_user(role))
    assert may in client.get("/account/").text


def test_it_shows_how_to_connect_a_coding_agent_to_who_may_read(browser: Client):
    page = reverse("dashboard:account")
    assert "http://testserver/mcp" in browser.get(page).text
    browser.force_login(make_user(Role.ANNOTATOR))
    assert "/mcp" not in browser.get(page).text


def test_a_key_needs_a_name(browser: Client):
    reply = browser.post(reverse("dashboard:key_create"), KEY | {"key-name": ""}, headers=HTMX)
    assert reply.status_code == 422
    assert ApiKey.objects.count() == 0


@pytest.mark.parametrize("scopes", [[], ["tasks:write"], ["everything"]])
def test_a_key_without_a_scope_and_one_beyond_the_role_are_refused(browser: Client, scopes: list[str]):
    reply = browser.post(reverse("dashboard:key_create"), KEY | {"key-scopes": scopes}, headers=HTMX)
    assert reply.status_code == 422
    assert ApiKey.objects.count() == 0


def test_the_list_shows_scopes_and_last_use_of_keys(browser: Client, owner: User):
    _, token = create_api_key(user=owner, name="cluster", scopes=["rollouts:read", "annotate"])
    assert find_api_key(token, address="192.0.2.7") is not None
    page = read(browser.get("/account/").text)
    assert [one.text for one in page.all("span") if one.attributes.get("class") == "chip muted mono"] == [
        "rollouts:read",
        "annotate",
    ]
    assert "from 192.0.2.7" in page.all("table")[0].text


def test_an_admin_sees_and_revokes_the_keys_of_others(owner: User):
    api_key, token = create_api_key(user=owner, name="cluster", scopes=["rollouts:read"])
    admin = Client()
    admin.force_login(make_user(Role.ADMIN))
    page = reverse("dashboard:person_edit", args=[owner.pk])
    assert "cluster" in admin.get(page).text
    reply = admin.post(reverse("dashboard:key_revoke", args=[api_key.pk]))
    assert (reply.status_code, reply["Location"]) == (302, page)
    assert find_api_key(token) is None


def test_a_key_is_revoked_by_its_owner_and_not_by_others(browser: Client, owner: User):
    browser.post(reverse("dashboard:key_create"), KEY)
    key = ApiKey.objects.get()
    stranger = Client()
    stranger.force_login(make_user(Role.ENGINEER))
    assert stranger.post(reverse("dashboard:key_revoke", args=[key.pk])).status_code == 403
    key.refresh_from_db()
    assert key.revoked_at is None
    assert browser.post(reverse("dashboard:key_revoke", args=[key.pk])).status_code == 302
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_a_hostile_key_name_stays_text(browser: Client):
    browser.post(reverse("dashboard:key_create"), KEY | {"key-name": '"><script>alert(1)</script>'})
    page = browser.get("/account/").text
    assert "<script>alert(1)" not in page
    assert "&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in page
