"""Every list: a fixed number of queries, pages that do not shift, and no parameter that was not declared."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Role
from apps.api.urls import router
from apps.rollouts.models import Worker
from tests.api.conftest import client_of
from tests.api.rows import MAKERS, key_owner
from tests.factories import make_agent, make_user

pytestmark = pytest.mark.django_db
LISTS = [prefix for prefix, _, _ in router.registry]


def test_every_list_is_tested():
    assert sorted(LISTS) == sorted(MAKERS)


@pytest.fixture
def reader(viewer, noun):
    """Who may read this list: a viewer's key, but for what only those see who review or lead, and what no key sees."""
    if noun in {
        "alert-deliveries",
        "alert-subscriptions",
        "audit-entries",
        "redaction-patterns",
        "trace-destinations",
    }:
        return client_of(Role.ADMIN)
    if noun in {"rubrics", "queues", "queue-items", "reviews"}:
        return client_of(Role.ENGINEER)
    if noun in {"me/keys", "me/sessions", "people", "invitations"}:
        client = Client()
        client.force_login(key_owner() if noun.startswith("me/") else make_user(Role.ADMIN))
        return client
    return viewer


@pytest.mark.parametrize("noun", LISTS)
def test_three_rows_take_as_many_queries_as_one(reader, noun):
    MAKERS[noun]()
    reader.get("/api/v1/me/")  # the key's first use is written down, once
    with CaptureQueriesContext(connection) as one:
        first = reader.get(f"/api/v1/{noun}/").json()
    MAKERS[noun]()
    MAKERS[noun]()
    with CaptureQueriesContext(connection) as three:
        third = reader.get(f"/api/v1/{noun}/").json()
    assert len(third["results"]) == len(first["results"]) + 2
    assert len(three) == len(one)
    assert len(one) <= 3  # the key, the rows, and at most one prefetch


@pytest.mark.parametrize("noun", ["collections", "rollouts"])
def test_every_order_lists_every_row_in_both_directions(viewer, noun):
    MAKERS[noun](), MAKERS[noun](), MAKERS[noun]()
    view = {prefix: view for prefix, view, _ in router.registry}[noun]
    ids = sorted(view.queryset.model.objects.values_list("pk", flat=True))
    assert len(ids) == 3
    for name in view.orders:
        for sign in ("", "-"):
            pages = read_pages(viewer, f"/api/v1/{noun}/?limit=2&ordering={sign}{name}")
            assert sorted(pk for page in pages for pk in page) == ids


@pytest.mark.parametrize("noun", LISTS)
def test_a_row_of_the_list_can_be_read_by_itself(reader, noun):
    row = MAKERS[noun]()
    lookup = getattr(row, "slug", row.pk)
    shown = reader.get(f"/api/v1/{noun}/{lookup}/")
    assert (shown.status_code, shown.json()["id"]) == (200, row.pk)
    assert reader.get(f"/api/v1/{noun}/99999999999999999999/").status_code == 404


BAD_PARAMETERS = [
    "password",
    "user__password",
    "created_by__password",
    "user__",
    "__",
    "dataset__environment__name",
    "id__gt",
    "api_key_encrypted__startswith",
    "pk",
    "collection__created_by__api_keys__secret_hash__startswith",
    "order_by",
    "format__",
    "-",
    "%00",
]


@pytest.mark.parametrize("noun", LISTS)
def test_a_parameter_that_was_not_declared_is_refused(reader, noun):
    for name in BAD_PARAMETERS:
        response = reader.get(f"/api/v1/{noun}/?{name}=a")
        problem = response.json()
        assert (response.status_code, problem["type"]) == (400, "urn:gymweb:problem:bad-query"), name
        assert [error["code"] for error in problem["errors"]] == ["unknown"]


def test_a_typing_error_gets_a_suggestion(viewer):
    [error] = viewer.get("/api/v1/rollouts/?colection=1").json()["errors"]
    assert (error["pointer"], error["code"]) == ("?colection", "unknown")
    assert "Did you mean “collection”" in error["message"]


@pytest.mark.parametrize(
    "query",
    [
        "rollouts/?collection=abc",
        "rollouts/?collection=1.5",
        "rollouts/?collection=-1",
        "rollouts/?collection=99999999999999999999999",
        "rollouts/?status=done",
        "rollouts/?reward_min=nan",
        "rollouts/?flagged=null",
        "rollouts/?rewarded=maybe",
        "rollouts/?collection=",
        "rollouts/?ordering=",
        "rollouts/?status=failed&status=completed",
        "tasks/?is_retired=0",
        "rollouts/?limit=0",
        "rollouts/?limit=1001",
        "rollouts/?limit=ten",
        "rollouts/?limit=²",
        "collections/?ordering=reward",
        "rollouts/?ordering=user__password",
        "rollouts/?cursor=nonsense",
        "rollouts/?cursor=WyJpZCIsMV0",  # of a list in another order
        "rollouts/?cursor=WyItaWQiLCJ4Il0",  # not a number
        "rollouts/1/?limit=3",
        "me/?limit=3",
    ],
)
def test_a_value_that_makes_no_sense_is_refused(viewer, query):
    response = viewer.get(f"/api/v1/{query}")
    assert (response.status_code, response.headers["Content-Type"]) == (400, "application/problem+json")
    assert response.json()["errors"][0]["pointer"] == "?" + query.split("?")[1].split("=")[0]


def test_a_flag_is_true_or_false_in_whatever_case(viewer):
    flagged, other = MAKERS["rollouts"](), MAKERS["rollouts"]()
    flagged.flagged, flagged.redactions = True, {"bearer": 1}
    flagged.save()
    found = [viewer.get(f"/api/v1/rollouts/?flagged={text}").json()["results"] for text in ("True", "false")]
    assert [[row["id"] for row in rows] for rows in found] == [[flagged.pk], [other.pk]]


def read_pages(client, url):
    pages = []
    while url:
        answer = client.get(url).json()
        pages.append([row["id"] for row in answer["results"]])
        url = answer["next"]
    return pages


@pytest.mark.parametrize("ordering", ["id", "-id"])
def test_pages_hold_every_row_once_in_order(viewer, ordering):
    ids = [MAKERS["workers"]().pk for _ in range(5)]
    wanted = sorted(ids, reverse=ordering == "-id")
    pages = read_pages(viewer, f"/api/v1/workers/?limit=2&ordering={ordering}&state=active")
    assert pages == [wanted[:2], wanted[2:4], wanted[4:]]


def test_a_page_does_not_shift_when_rows_are_added_or_deleted(viewer):
    first, second, third, fourth = (MAKERS["workers"]().pk for _ in range(4))
    page = viewer.get("/api/v1/workers/?limit=2").json()
    assert [row["id"] for row in page["results"]] == [fourth, third]
    MAKERS["workers"]()
    Worker.objects.filter(pk=third).delete()
    page = viewer.get(page["next"]).json()
    assert ([row["id"] for row in page["results"]], page["next"], page["next_cursor"]) == ([second, first], None, None)


def test_filters_narrow_a_list(viewer):
    wanted, other = MAKERS["rollouts"](), MAKERS["rollouts"]()
    other.reward = 0.25
    other.save()
    found = {
        query: [row["id"] for row in viewer.get(f"/api/v1/rollouts/?ordering=id&{query}").json()["results"]]
        for query in [
            f"collection={wanted.collection_id}",
            f"task={other.task_id}",
            "reward_min=0.5",
            "reward_max=0.5",
            "rewarded=true",
            "rewarded=false",
            "status=failed",
        ]
    }
    assert list(found.values()) == [[wanted.pk], [other.pk], [wanted.pk], [other.pk], [wanted.pk, other.pk], [], []]


@pytest.mark.parametrize("noun", LISTS)
def test_reading_writes_nothing(reader, noun):
    row = MAKERS[noun]()
    reader.get("/api/v1/me/")  # the key's first use is written down, once
    with CaptureQueriesContext(connection) as asked:
        assert reader.get(f"/api/v1/{noun}/").status_code == 200
        assert reader.get(f"/api/v1/{noun}/{getattr(row, 'slug', row.pk)}/").status_code == 200
    assert [one["sql"] for one in asked if not one["sql"].startswith("SELECT")] == []


@pytest.mark.parametrize("noun", LISTS)
def test_rows_and_lists_can_be_asked_for_in_part(reader, noun):
    row = MAKERS[noun]()
    lookup = getattr(row, "slug", row.pk)
    assert reader.get(f"/api/v1/{noun}/?fields=id").json()["results"][0] == {"id": row.pk}
    assert reader.get(f"/api/v1/{noun}/{lookup}/?fields=id").json() == {"id": row.pk}
    for address in (f"/api/v1/{noun}/?fields=id,idd", f"/api/v1/{noun}/{lookup}/?fields=idd"):
        refused = reader.get(address)
        [error] = refused.json()["errors"]
        assert (refused.status_code, error["pointer"], error["code"]) == (400, "?fields", "unknown")
        assert ("“idd”" in error["message"], "Did you mean “id”" in error["message"]) == (True, True)


def test_lists_leave_out_large_fields(viewer):
    described = viewer.get("/api/schema/", headers={"Accept": "application/json"}).json()["components"]["schemas"]
    pages = {name: part for name, part in described.items() if name.startswith("Paginated")}
    heavy = {"row", "events", "trace", "items", "metrics", "snapshot", "manifest", "calls", "segments"}
    carried = {}
    for name, page in pages.items():
        row = page["properties"]["results"]["items"]["$ref"].rsplit("/", 1)[1]
        carried[name] = heavy & set(described[row]["properties"])
    assert {name: found for name, found in carried.items() if found} == {}


def test_agents_are_searched_as_on_their_page(viewer):
    make_agent(slug="careful", system_prompt="Think twice.")
    make_agent(slug="bold", kind="external")
    for query, found in (("q=twice", ["careful"]), ("kind=external", ["bold"]), ("q=absent", [])):
        assert [row["slug"] for row in viewer.get(f"/api/v1/agents/?{query}").json()["results"]] == found


@pytest.mark.parametrize("address", ["", "{slug}/", "?fields=id,name"])
def test_what_did_not_change_is_not_sent_again(viewer, address):
    agent = MAKERS["agents"]()
    address = "/api/v1/agents/" + address.format(slug=agent.slug)
    first = viewer.get(address)
    again = viewer.get(address, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    agent.name = "Another"
    agent.save()
    changed = viewer.get(address, headers={"If-None-Match": first.headers["ETag"]})
    assert (changed.status_code, changed.headers["ETag"] != first.headers["ETag"]) == (200, True)
