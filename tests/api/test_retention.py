"""Disk use and retention rules over the API."""

import pytest
from django.db import connection

from apps.accounts.models import AuditEntry, Role
from apps.rollouts.models import CollectionDeletion
from apps.rollouts.steering.collection_deletion import delete_next_collection
from tests.api.conftest import client_of
from tests.exports.test_retention import make_finished, use_in_export

pytestmark = pytest.mark.django_db
JSON = "application/json"


@pytest.fixture
def admin(db):
    return client_of(Role.ADMIN)


def test_the_preview_names_what_applying_deletes(admin):
    used, free = make_finished(), make_finished()
    use_in_export(used)
    rule = {"what": "traces", "collections": [used.pk, free.pk]}
    plan = admin.post("/api/v1/retention/preview/", rule, JSON).json()
    assert [each["collection"] for each in plan["deleted"]] == [free.pk]
    assert [(each["collection"], each["uses"]) for each in plan["kept"]] == [(used.pk, {"exports": 1})]
    assert not CollectionDeletion.objects.exists()
    response = admin.post("/api/v1/retention/", rule, JSON)
    assert response.status_code == 202
    [deletion] = response.json()
    assert (deletion["collection"], deletion["traces_only"]) == (free.pk, True)
    assert delete_next_collection()
    done = admin.get(f"/api/v1/collection-deletions/{deletion['id']}/").json()
    measured = (done["deleted"], done["deleted_events"], done["deleted_bytes"])
    assert measured == (plan["rollouts"], plan["events"], plan["bytes"])
    assert admin.get(f"/api/v1/collections/{free.pk}/").json()["traces_deleted_at"] is not None
    assert AuditEntry.objects.filter(action="collection.traces_deleted").count() == 1


def test_an_invalid_rule_names_its_field(admin):
    response = admin.post("/api/v1/retention/", {"what": "collections", "ignore_pair_sets": True}, JSON)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/ignore_pair_sets")
    response = admin.post("/api/v1/retention/", {"older_than_days": -1}, JSON)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/older_than_days")


def test_storage_lists_collections_and_tables(admin, engineer):
    collection = make_finished(rollouts=2)
    answer = admin.get("/api/v1/storage/").json()
    [row] = answer["collections"]
    events = 12
    assert (row["id"], row["rollouts"], row["events"]) == (collection.pk, 2, events)
    assert row["bytes"] > 0
    if connection.vendor == "postgresql":
        assert "rollouts_traceevent" in {table["name"] for table in answer["tables"]}
    assert engineer.get("/api/v1/storage/").status_code == 403


def test_a_slow_measurement_is_left_out(admin, monkeypatch):
    from apps.exports.retention import storage_use

    make_finished()
    monkeypatch.setattr(storage_use, "MAX_SECONDS", 1e-9)
    monkeypatch.setattr("apps.rollouts.search.filters.query_time_limit._STEPS", 1)
    if connection.vendor == "sqlite":
        assert admin.get("/api/v1/storage/").json()["collections"] == []
