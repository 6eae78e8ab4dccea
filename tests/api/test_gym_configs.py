"""NeMo Gym configurations by the API: a preview that stores nothing, and registering all or nothing."""

import pytest

from apps.accounts.models import Role
from apps.accounts.permissions import ROLE_PERMISSIONS, Permission
from apps.environments.models import Environment
from tests.gym.gymconfig.test_describing import ENV, LAB, MODEL

pytestmark = pytest.mark.django_db
URL = "/api/v1/gym-configs/"
ALL = f"{LAB}--- # model.yaml{MODEL}--- # env.yaml\n{ENV}"


@pytest.fixture(autouse=True)
def reachable(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]


def test_a_preview_stores_nothing_and_registering_does(engineer):
    seen = engineer.post(f"{URL}preview/", {"text": ALL}, "application/json")
    assert (seen.status_code, seen.json()["problems"]) == (200, [])
    assert seen.json()["lines"][0] == {
        "kind": "environment",
        "slug": "lab",
        "outcome": "created",
        "told": "http://127.0.0.1:8123",
    }
    assert not Environment.objects.filter(slug="lab").exists()
    made = engineer.post(URL, {"text": ALL, "addresses": {"lab": "http://127.0.0.1:9001"}}, "application/json")
    assert (made.status_code, [line["outcome"] for line in made.json()["lines"]]) == (
        201,
        [*["created"] * 5, "skipped", "skipped"],
    )
    assert Environment.objects.get(slug="lab").base_url == "http://127.0.0.1:9001"
    again = engineer.post(URL, {"text": ALL, "without_models": True, "without_data": True}, "application/json")
    assert [(line["kind"], line["outcome"]) for line in again.json()["lines"]] == [
        ("environment", "changed"),
        ("agent", "unchanged"),
    ]


def test_errors_name_document_and_key(engineer, settings):
    settings.OUTBOUND_ALLOW = []
    seen = engineer.post(f"{URL}preview/", {"text": ALL}, "application/json")
    [problem] = seen.json()["problems"]
    assert (problem["file"], problem["key"]) == ("document 1", "lab.resources_servers.lab")
    assert "GYMWEB_OUTBOUND_ALLOW" in problem["message"]
    refused = engineer.post(URL, {"text": ALL}, "application/json")
    assert (refused.status_code, refused.json()["type"]) == (400, "urn:gymweb:problem:config-refused")
    assert refused.json()["errors"] == [{"code": "refused", **problem}]
    assert not Environment.objects.filter(slug="lab").exists()
    nothing = engineer.post(URL, {"text": "x" * 100_001}, "application/json")
    assert nothing.json()["errors"][0]["pointer"] == "/text"


def test_who_may_register_a_configuration_may_make_all_that_it_holds():
    needed = {Permission.MODELS, Permission.UPLOAD}
    assert [role for role in Role.values if Permission.CONFIGURE in ROLE_PERMISSIONS[role]] == [
        role for role in Role.values if needed <= ROLE_PERMISSIONS[role]
    ]
