"""Fields of other adapters are refused when they are given, and cleared when the adapter changes."""

import pytest

from apps.environments.models import Environment
from tests.factories import make_environment

pytestmark = pytest.mark.django_db
URL = "/api/v1/environments/"
SERVER = "http://127.0.0.1:8001"


@pytest.mark.parametrize(
    ("adapter", "field", "given"),
    [
        ("declared", "base_url", SERVER),
        ("declared", "builtin", "calculator"),
        ("builtin", "base_url", SERVER),
        ("http", "command", "files"),
        ("mcp", "builtin", "calculator"),
    ],
)
def test_a_field_that_the_adapter_does_not_use_is_refused(engineer, settings, adapter, field, given):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    needed = {"builtin": {"builtin": "calculator"}, "declared": {}}.get(adapter, {"base_url": SERVER})
    body = {"slug": "sums", "name": "Sums", "adapter": adapter, **needed}
    refused = engineer.post(URL, {**body, field: given}, content_type="application/json")
    assert (refused.status_code, [one["pointer"] for one in refused.json()["errors"]]) == (400, [f"/{field}"])
    assert adapter in refused.json()["errors"][0]["message"]
    assert not Environment.objects.filter(slug="sums").exists()
    assert engineer.post(URL, {**body, field: ""} | needed, content_type="application/json").status_code == 201


def test_the_address_of_the_earlier_adapter_is_cleared(engineer):
    make_environment(slug="sums", adapter="http", builtin="", base_url=SERVER)
    refused = engineer.patch(
        f"{URL}sums/", {"adapter": "declared", "base_url": SERVER}, content_type="application/json"
    )
    changed = engineer.patch(f"{URL}sums/", {"adapter": "declared"}, content_type="application/json")
    assert (refused.status_code, changed.status_code, changed.json()["base_url"]) == (400, 200, "")
    assert engineer.patch(f"{URL}sums/", {"base_url": SERVER}, content_type="application/json").status_code == 400
