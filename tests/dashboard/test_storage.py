"""The page of disk use: what a rule deletes is shown before it is deleted."""

import pytest
from django.db import connection
from django.test import Client

from apps.rollouts.models import Collection, CollectionDeletion, TraceEvent
from apps.rollouts.steering.collection_deletion import delete_next_collection
from tests.exports.test_retention import make_finished, use_in_export

pytestmark = pytest.mark.django_db
STORAGE = "/settings/storage/"
RULE = {"what": "traces", "older_than_days": "90", "archived": ""}


def test_disk_use_is_shown_by_table_and_collection(admin_pages: Client, pages: Client):
    collection = make_finished()
    page = admin_pages.get(STORAGE).text
    assert collection.label in page
    assert "rollouts_traceevent" in page or connection.vendor == "sqlite"
    assert pages.get(STORAGE).status_code == 403


def test_a_rule_is_previewed_then_applied(admin_pages: Client):
    used, free = make_finished(), make_finished()
    use_in_export(used)
    response = admin_pages.post(STORAGE, RULE)
    plan = response.context["plan"]
    assert [each.collection for each in plan.deleted] == [free]
    assert [each.collection for each in plan.kept] == [used]
    assert "exports: 1" in response.text
    assert TraceEvent.objects.filter(rollout__collection=free).exists()
    assert not CollectionDeletion.objects.exists()

    response = admin_pages.post(STORAGE, {**RULE, "delete": "1"})
    assert (response.status_code, response["Location"]) == (302, STORAGE)
    assert delete_next_collection()
    deletion = CollectionDeletion.objects.get()
    assert (deletion.collection, deletion.deleted_bytes, deletion.created_by.username) == (free, plan.bytes, "admina")
    assert not TraceEvent.objects.filter(rollout__collection=free).exists()
    assert deletion.name in admin_pages.get(STORAGE).text
    rollout = free.rollouts.first()
    for address in (f"/rollouts/{rollout.pk}/", f"/collections/{free.pk}/", f"/collection-deletions/{deletion.pk}/"):
        response = admin_pages.get(address)
        assert response.status_code == 200
        assert "traces" in response.text.lower()
    assert "traces of this collection were deleted" in admin_pages.get(f"/rollouts/{rollout.pk}/").text
    assert (
        "traces of this collection were deleted" not in admin_pages.get(f"/rollouts/{used.rollouts.first().pk}/").text
    )


def test_an_invalid_rule_is_explained_and_deletes_nothing(admin_pages: Client):
    make_finished()
    rule = {**RULE, "what": "collections", "ignore_exports": "on", "delete": "1"}
    response = admin_pages.post(STORAGE, rule)
    assert response.status_code == 422
    assert "ignore_exports" in response.context["form"].errors
    assert admin_pages.post(STORAGE, {**RULE, "older_than_days": "-1", "delete": "1"}).status_code == 422
    assert not CollectionDeletion.objects.exists()
    assert Collection.objects.filter(is_being_deleted=True).count() == 0
