import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve

from apps.accounts.models import Role, User
from apps.accounts.permissions import Permission, user_may
from apps.dashboard.chrome.destinations import DESTINATIONS, destinations_for
from apps.dashboard.chrome.finder_entries import find_everything
from tests.dashboard.pages import signed_in
from tests.factories import make_agent, make_collection, make_dataset, make_policy_model, make_rollout, make_user

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


def labels(user: User, text: str) -> dict[str, list[str]]:
    return {group.label: [hit.label for hit in group.hits] for group in find_everything(user, text)}


def test_an_empty_search_lists_permitted_actions_and_pages(engineer: User, admin: User):
    assert "New collection" in labels(engineer, "")["Actions"]
    assert "New user" not in labels(engineer, "")["Actions"]
    assert "New user" in labels(admin, "")["Actions"]
    viewer = make_user(Role.VIEWER)
    assert "Actions" not in labels(viewer, "")
    assert {"Audit log", "Users and roles", "Endpoint API keys"} & set(labels(viewer, "")["Pages"]) == set()


@pytest.mark.parametrize("role", Role.values)
def test_every_destination_opens_to_whom_it_is_shown(role):
    client = signed_in(role)
    user = User.objects.get(role=role)
    shown = list(destinations_for(user))
    assert [each.label for each in shown if client.get(each.url).status_code != 200] == []


def test_a_destination_asks_for_the_permission_of_its_page():
    wrong = [
        each.label for each in DESTINATIONS if resolve(each.url).func.permissions["GET"] is not each.permission
    ]  # fmt: skip
    # It leads annotators to their queues, which are in their menu anyway.
    assert wrong == ["Overview"]


def test_things_are_found_by_every_word_of_their_name_or_slug(engineer: User):
    make_collection(name="Nightly sums", dataset=make_dataset(slug="long-sums", name="Arithmetic"))
    make_policy_model(slug="qwen-7b", name="Qwen")
    make_agent(slug="patient", name="Waits")
    assert list(labels(engineer, "SUMS nightly")) == ["Collections"]
    assert labels(engineer, "long-su")["Datasets"] == ["Arithmetic"]
    assert labels(engineer, "7b") == {"Models": ["Qwen"]}
    assert labels(engineer, "patient") == {"Agents": ["Waits"]}
    assert labels(engineer, "qwen sums") == {}


def test_a_number_names_a_rollout_a_collection_and_a_task(engineer: User):
    collection = make_collection()
    rollout = make_rollout(collection)
    hits = [hit for hit in find_everything(engineer, f"#{rollout.pk}")[0].hits if hit.label.startswith("Rollout")]
    assert [(hit.label, hit.url) for hit in hits] == [(f"Rollout {rollout.pk}", f"/rollouts/{rollout.pk}/")]
    collection.is_being_deleted = True
    collection.save()
    assert labels(engineer, str(rollout.pk)).get("By number", []) in ([], [f"Task {rollout.pk}"])
    for odd in ("9" * 60, "²", "-1", "1e3", "#", "%", "\x00", "_", "' OR 1=1"):
        assert labels(engineer, odd).get("By number", []) == []


def test_results_are_limited_and_show_that_there_are_more(engineer: User):
    for number in range(8):
        make_agent(slug=f"agent-many-{number}", name=f"Many {number}")
    (agents,) = [group for group in find_everything(engineer, "many") if group.label == "Agents"]
    assert (len(agents.hits), agents.more) == (6, True)


def test_the_finder_takes_the_same_queries_for_one_and_for_many(pages: Client):
    counts = []
    for _ in range(2):
        make_agent(name="Many one")
        make_agent(name="Many two")
        with CaptureQueriesContext(connection) as queries:
            assert pages.get("/find/?q=many", headers=HTMX).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_the_palette_gets_options_and_a_browser_without_scripts_a_page(pages: Client):
    options = pages.get("/find/?q=collection", headers=HTMX).text
    assert "<html" not in options
    ids = re.findall(r'role="option"[^>]* id="([^"]+)"', options)
    assert len(ids) == len(set(ids)) >= 3
    page = pages.get("/find/?q=new+coll").text
    assert re.findall(r'<li><a href="(/collections/new/)">', page) == ["/collections/new/"]
    assert "No results" in pages.get("/find/?q=zzzz").text
    assert 'href="/find/" data-palette' in pages.get("/").text


def test_a_hostile_name_is_shown_as_text(pages: Client):
    make_agent(name="<img src=x onerror=ran()>")
    assert "&lt;img src=x onerror=ran()&gt;" in pages.get("/find/?q=onerror", headers=HTMX).text


def test_tabs_show_only_permitted_settings(viewer_pages: Client, admin_pages: Client):
    def tabs(client: Client) -> list[str]:
        nav = re.search(r'<nav class="tabs settings-tabs".*?</nav>', client.get("/account/").text, re.S)
        assert nav is not None
        return re.findall(r">([^<>]+)</a>", nav[0])

    assert tabs(viewer_pages) == ["All settings", "Your account", "Trackers"]
    assert len(tabs(admin_pages)) == 11
    assert not user_may(User.objects.get(username="vera"), Permission.ACCOUNTS)
