"""The id of each request: in the response, in problems and error pages, in the audit log, in log lines."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import AuditEntry, Role
from apps.accounts.telemetry.current_request import CURRENT_REQUEST, HEADER
from tests.dashboard.pages import signed_in

MADE = re.compile(r"[0-9a-f]{32}")

pytestmark = pytest.mark.django_db


def test_each_request_has_an_id_of_its_own() -> None:
    first, second = (Client().get("/healthz").headers[HEADER] for _ in range(2))
    assert MADE.fullmatch(first) and MADE.fullmatch(second) and first != second
    assert CURRENT_REQUEST.get() is None


@pytest.mark.parametrize("given", ["abc", "a" * 65, "has space here", "<script>x</script>", "line\nbreak-1", "ü" * 10])
def test_an_unsafe_id_is_replaced(settings, given) -> None:
    settings.TRUSTED_PROXIES = 1
    assert MADE.fullmatch(Client().get("/healthz", headers={HEADER: given}).headers[HEADER])


def test_only_an_installation_behind_a_proxy_takes_the_id_of_the_request(settings) -> None:
    given = {HEADER: "edge-7f3a.0001"}
    assert MADE.fullmatch(Client().get("/healthz", headers=given).headers[HEADER])
    settings.TRUSTED_PROXIES = 1
    assert Client().get("/healthz", headers=given).headers[HEADER] == "edge-7f3a.0001"


@pytest.mark.parametrize("path", ["/api/v1/collections/999999/", "/api/v1/nothing/", "/api/v1/people/"])
def test_a_problem_has_the_id(path) -> None:
    answer = signed_in(Role.VIEWER).get(path)
    assert answer.status_code in (403, 404)
    assert answer.json()["request_id"] == answer.headers[HEADER]


@pytest.mark.parametrize(("path", "status"), [("/people/", 403), ("/collections/999999/", 404)])
def test_an_error_page_shows_the_id(path, status) -> None:
    answer = signed_in(Role.VIEWER).get(path)
    assert answer.status_code == status
    assert answer.headers[HEADER] in answer.text


def test_the_page_of_a_server_error_shows_the_id(monkeypatch) -> None:
    monkeypatch.setattr("apps.dashboard.views.accounts.alert_views.render", lambda *given: 1 / 0)
    client = signed_in(Role.ENGINEER)
    client.raise_request_exception = False
    answer = client.get(reverse("dashboard:alert_list"))
    assert answer.status_code == 500
    assert answer.headers[HEADER] in answer.text


def test_a_form_without_its_token_is_refused_with_the_id() -> None:
    answer = Client(enforce_csrf_checks=True).post("/sign-in/", {})
    assert answer.status_code == 403
    assert answer.headers[HEADER] in answer.text


def test_the_audit_log_has_the_id() -> None:
    answer = signed_in(Role.ENGINEER).post("/api/v1/agents/", {"slug": "one", "name": "One"}, "application/json")
    assert answer.status_code == 201
    entry = AuditEntry.objects.get(action="agent.create")
    assert entry.request_id == answer.headers[HEADER]
