"""The schema describes every address, and Swagger UI runs under the strict content security policy."""

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from apps.accounts.permissions import Permission
from apps.api.urls import router
from tests.factories import make_user

pytestmark = pytest.mark.django_db
METHODS = {"get", "post", "put", "patch", "delete"}


def test_the_schema_describes_every_list_with_its_problems(viewer):
    schema = viewer.get("/api/schema/", headers={"Accept": "application/json"}).json()
    lists = [prefix for prefix, view, _ in router.registry if hasattr(view, "list")]
    assert len(lists) >= len(router.registry) - 1  # attempts are taken, not listed
    for prefix in lists:
        listing = schema["paths"][f"/api/v1/{prefix}/"]["get"]
        assert set(listing["responses"]) == {"200", "304", "412", "default"}
        assert {"cursor", "limit", "ordering"} <= {parameter["name"] for parameter in listing["parameters"]}
    assert schema["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"


def test_every_operation_tells_its_problems_its_permission_and_an_example_of_its_body(viewer):
    schema = viewer.get("/api/schema/", headers={"Accept": "application/json"}).json()
    parts = schema["components"]
    always = parts["responses"]["Problem"]["content"]["application/problem+json"]["examples"].values()
    assert [one["value"]["status"] for one in always] == [400, 401, 403, 406, 429, 503, 507]
    operations = [one for path in schema["paths"].values() for method, one in path.items() if method in METHODS]
    for operation in operations:
        problems = {status: one for status, one in operation["responses"].items() if status[0] == "4"}
        named = {status: parts["responses"][one["$ref"].rsplit("/", 1)[1]] for status, one in problems.items()}
        statuses = {str(one["content"]["application/problem+json"]["example"]["status"]) for one in named.values()}
        assert statuses == set(problems)
        assert operation["responses"]["default"] == {"$ref": "#/components/responses/Problem"}
        assert operation["x-permission"] in set(Permission)
        assert ({"apiKey": []} in operation["security"]) == bool(operation["x-scopes"])
        for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
            if media_type == "application/json" and "$ref" in body["schema"]:
                assert parts["schemas"][body["schema"]["$ref"].rsplit("/", 1)[1]]["example"], operation["operationId"]


def test_a_secret_is_written_and_never_described_as_read(viewer):
    schemas = viewer.get("/api/schema/", headers={"Accept": "application/json"}).json()["components"]["schemas"]
    assert "api_key" in schemas["PolicyModelRequest"]["properties"]
    assert [name for name in schemas["PolicyModel"]["properties"] if "key" in name] == ["api_key_hint", "key_is_token"]


def test_swagger_ui_has_nothing_inline_and_all_its_files_are_here():
    client = Client()
    client.force_login(make_user())
    page = client.get("/api/docs/")
    html = page.content.decode()
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert re.findall(r"<style|style=|<script(?![^>]*src=)|\son\w+=", html) == []
    files = re.findall(r'(?:src|href)="/static/([^"]+)"', html)
    assert len(files) == 5
    assert [file for file in files if finders.find(file) is None] == []


def test_swagger_ui_is_for_people_who_are_signed_in(client):
    assert client.get("/api/docs/").headers["Location"] == "/sign-in/?next=/api/docs/"
