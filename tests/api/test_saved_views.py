"""Saved views by the API: one's own and shared ones, changed by who saved them alone; each filter means something."""

import pytest

from apps.accounts.models import AuditEntry, SavedView
from tests.factories import make_user

pytestmark = pytest.mark.django_db
URL = "/api/v1/saved-views/"


def send(client, method: str, address: str, **body):
    return getattr(client, method)(address, body, content_type="application/json")


def test_a_view_is_saved_listed_changed_and_deleted(viewer):
    made = send(viewer, "post", URL, name="Cut", query="turns:>3  flag:truncated", sort="-tokens", columns=["cost"])
    assert (made.status_code, made.json()["query"]) == (201, "steps:>3 flag:truncated")
    address = f"{URL}{made.json()['id']}/"
    assert [row["name"] for row in viewer.get(URL).json()["results"]] == ["Cut"]
    changed = send(viewer, "patch", address, is_shared=True, name="Cut short").json()
    assert (changed["is_shared"], changed["name"], changed["query"]) == (True, "Cut short", "steps:>3 flag:truncated")
    assert viewer.delete(address).status_code == 204
    assert viewer.get(address).status_code == 404
    actions = AuditEntry.objects.filter(noun="view").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["view.saved", "view.changed", "view.deleted"]


def test_a_name_that_is_taken_is_a_conflict_that_says_what_to_do(viewer):
    first = send(viewer, "post", URL, name="Mine", query="reward:1").json()
    refused = send(viewer, "post", URL, name="Mine", query="reward:0")
    told = refused.json()
    assert (refused.status_code, told["type"], told["saved_view"]) == (
        409,
        "urn:gymweb:problem:name-taken",
        first["id"],
    )
    assert ("“Mine”" in told["detail"], "choose another name" in told["detail"]) == (True, True)
    assert [error["pointer"] for error in told["errors"]] == ["/name"]
    assert [view.query for view in SavedView.objects.all()] == ["reward:1"]


def test_a_view_is_replaced_where_that_is_asked_for(viewer):
    first = send(viewer, "post", URL, name="Mine", query="reward:1", replace=True).json()
    again = send(viewer, "post", URL, name="Mine", query="reward:0", replace=True)
    assert (again.status_code, again.json()["id"], again.json()["query"]) == (201, first["id"], "reward:0")
    assert [view.query for view in SavedView.objects.all()] == ["reward:0"]


def test_a_view_is_not_renamed_to_another_of_ones_own(viewer):
    first = send(viewer, "post", URL, name="Mine", query="reward:1").json()
    second = send(viewer, "post", URL, name="Also mine", query="reward:0").json()
    refused = send(viewer, "patch", f"{URL}{second['id']}/", name="Mine")
    assert (refused.status_code, refused.json()["saved_view"]) == (409, first["id"])
    assert sorted(view.name for view in SavedView.objects.all()) == ["Also mine", "Mine"]


def test_other_users_read_shared_views_but_cannot_change_them(viewer):
    other = make_user()
    shared = SavedView.objects.create(user=other, name="Theirs", query="reward:1", is_shared=True)
    SavedView.objects.create(user=other, name="Hidden", query="reward:0")
    assert [(row["name"], row["user"]) for row in viewer.get(URL).json()["results"]] == [("Theirs", other.username)]
    refused = [send(viewer, "patch", f"{URL}{shared.pk}/", name="x"), viewer.delete(f"{URL}{shared.pk}/")]
    assert [(each.status_code, each.json()["type"]) for each in refused] == [(403, "urn:gymweb:problem:not-yours")] * 2


@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        ({"name": "x", "query": "rewrd:1"}, "/query", "At character 1: Unknown key “rewrd”"),
        ({"name": "  "}, "/name", "blank"),
        ({"name": "x", "sort": "id; DROP"}, "/sort", "pattern"),
        ({"name": "x", "columns": ["c"] * 41}, "/columns", "no more than 40"),
        ({"name": "x", "table": "users", "owner": 1}, "/owner", "Unknown field"),
    ],
)
def test_a_view_that_means_nothing_is_refused_by_field(viewer, body, pointer, said):
    refused = send(viewer, "post", URL, **body)
    (error,) = refused.json()["errors"]
    assert (refused.status_code, error["pointer"], said in error["message"]) == (400, pointer, True), error
