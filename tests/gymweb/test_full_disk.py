"""What people and programs are told while a disk is full, what they may still do, and that nothing is a bare error."""

import errno

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import OperationalError
from django.test import Client
from django.urls import reverse

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import ApiKey
from apps.api.datasets import dataset_viewsets
from apps.rollouts.models import Collection
from apps.rollouts.steering.holds import find_holds
from tests.factories import make_collection, make_user

pytestmark = pytest.mark.django_db


def full(*args, **kwargs):
    raise OperationalError("could not extend file: No space left on device")


@pytest.fixture
def program() -> Client:
    _, token = create_api_key(user=make_user("admin"), name="script", scopes=["admin"])
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def person() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(make_user("admin"))
    return client


@pytest.mark.django_db(transaction=True)
def test_a_process_with_a_full_disk_is_not_ready_and_names_the_disk_without_its_folder(full_disk):
    reply = Client().get("/readyz")
    assert reply.status_code == 503
    said = reply.json()
    assert said["ready"] is False
    assert set(said["missing"]) == {"disk"}
    assert "disk" in said["missing"]["disk"]
    assert "/" not in said["missing"]["disk"]
    full_disk.free()
    assert Client().get("/readyz").status_code == 200


def test_programs_read_and_are_told_why_they_cannot_write(program, full_disk):
    collection = make_collection()
    assert program.get("/api/v1/collections/").status_code == 200
    answer = program.post("/api/v1/datasets/", {"slug": "a", "name": "A"}, content_type="application/json")
    assert (answer.status_code, answer.headers["Content-Type"]) == (507, "application/problem+json")
    said = answer.json()
    assert (said["type"], said["status"]) == ("urn:gymweb:problem:disk-full", 507)
    assert "is full" in said["detail"]
    full_disk.free()
    answer = program.patch(f"/api/v1/collections/{collection.pk}/", {"priority": 1}, content_type="application/json")
    assert answer.status_code == 200


def test_what_frees_space_or_stops_work_goes_through(program, person, full_disk):
    collection = make_collection()
    assert program.post(f"/api/v1/collections/{collection.pk}/pause/").status_code == 200
    assert program.post(f"/api/v1/collections/{collection.pk}/cancel/").status_code == 200
    assert program.delete(f"/api/v1/collections/{collection.pk}/").status_code == 202
    assert person.post(reverse("dashboard:sign_out")).status_code == 302


def test_people_see_a_banner_and_a_page_instead_of_an_error(person, full_disk):
    shown = person.get("/collections/")
    assert (shown.status_code, "is full" in shown.text) == (200, True)
    refused = person.post(reverse("dashboard:dataset_create"), {"name": "A"})
    assert (refused.status_code, "<h1>Disk full</h1>" in refused.text) == (507, True)
    part = person.post(reverse("dashboard:dataset_create"), {"name": "A"}, headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["Content-Type"]) == (507, "text/plain; charset=utf-8")
    assert ("<html" in part.text, "resumes automatically" in part.text) == (False, True)
    full_disk.free()
    assert "is full" not in person.get("/collections/").text


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OperationalError("No space left on device")])
def test_a_write_without_space_is_a_507_everywhere(program, monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(dataset_viewsets.DatasetViewSet, "list", fail)
    answer = program.get("/api/v1/datasets/")
    assert (answer.status_code, answer.json()["type"]) == (507, "urn:gymweb:problem:disk-full")


def test_who_signs_in_while_no_session_can_be_stored_gets_a_page(monkeypatch):
    user = make_user()
    user.set_password("correct horse battery")
    user.save()
    monkeypatch.setattr(SessionStore, "save", full)
    client = Client(raise_request_exception=False)
    answer = client.post(reverse("dashboard:sign_in"), {"username": user.username, "password": "correct horse battery"})
    assert (answer.status_code, "<h1>Disk full</h1>" in answer.text) == (507, True)


def test_reads_need_neither_the_time_of_a_key_nor_a_count_of_requests(program, monkeypatch, settings):
    settings.API_RATE = 6000
    monkeypatch.setattr("apps.accounts.request_limits.add", full)
    monkeypatch.setattr("django.db.models.query.QuerySet.update", full)
    assert [program.get("/api/v1/collections/").status_code for _ in range(3)] == [200] * 3
    assert ApiKey.objects.get().last_used_at is None


def test_a_collection_says_that_it_waits_for_the_disk_and_goes_on_by_itself(program, person, full_disk):
    collection = make_collection(state=Collection.State.RUNNING)
    assert [hold.key for hold in find_holds(collection)] == ["disk"]
    said = program.get(f"/api/v1/collections/{collection.pk}/").json()
    assert said["state"] == "running"
    assert ["disk full" in hold for hold in said["held_back_by"]] == [True]
    assert "The disk" in person.get(f"/collections/{collection.pk}/").text
    # The disk does not resume it.
    collection.state = Collection.State.PAUSED
    assert find_holds(collection) == []
    collection.state = Collection.State.RUNNING
    full_disk.free()
    assert find_holds(collection) == []
