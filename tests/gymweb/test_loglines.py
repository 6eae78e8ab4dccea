"""What a refused page leaves in the server's log."""

import contextvars
import io
import json
import logging.config
from copy import deepcopy
from datetime import datetime
from types import SimpleNamespace

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError
from django.test import Client

from apps.accounts.invitations import create_invitation
from apps.accounts.models import Role
from apps.accounts.outage_log import OutageLog
from apps.accounts.sign_in import create_sign_in_link
from apps.accounts.telemetry import log_context
from gymweb import loglines
from tests.dashboard.pages import signed_in
from tests.factories import make_user


@pytest.fixture
def log():
    """Everything that the configured handler writes."""
    written = io.StringIO()
    config = deepcopy(settings.LOGGING)
    config["handlers"]["stderr"]["stream"] = written
    logging.config.dictConfig(config)
    yield written
    logging.config.dictConfig(settings.LOGGING)


@pytest.mark.django_db
def test_a_refused_page_is_one_line_in_the_log(log):
    assert signed_in(Role.VIEWER).get("/people/").status_code == 403
    line = "WARNING django.request Forbidden (Permission denied): /people/: Your role does not have the permission"
    assert log.getvalue().count("\n") == 1
    assert line in log.getvalue()


def test_any_other_failure_keeps_its_traceback(log):
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("django.request").exception("it broke")
    assert log.getvalue().endswith("ValueError: broken\n")
    assert "Traceback" in log.getvalue()


@pytest.fixture
def logged(log, monkeypatch):
    """What the lines become that Django logs about requests which met this error of the driver."""
    monkeypatch.setattr(loglines, "DATABASE", OutageLog("The database"))

    def log_requests(cause: Exception, requests: int = 1) -> list[str]:
        for _ in range(requests):
            try:
                raise OperationalError(str(cause)) from cause
            except OperationalError as error:
                logging.getLogger("django.request").error("Service Unavailable: /x/", exc_info=error)
        return log.getvalue().splitlines()

    return log_requests


def test_requests_while_the_database_is_away_are_one_line(logged):
    refused = psycopg.OperationalError("connection failed: Connection refused\n\tIs the server running?")
    [line] = logged(refused, requests=3)
    assert "The database fails (answering requests)" in line
    assert "Connection refused" in line


def test_a_wrong_query_is_logged_with_its_traceback(logged):
    assert "Traceback (most recent call last):" in logged(psycopg.errors.QueryCanceled("canceled"))


def test_requests_that_a_full_disk_refuses_are_one_line_a_minute(log, monkeypatch):
    monkeypatch.setattr(loglines, "DISK", OutageLog("The disk"))
    for _ in range(40):
        logging.getLogger("django.request").error("Insufficient Storage", extra={"status_code": 507})
    assert log.getvalue().count("\n") == 1
    assert "The disk fails (storing what was sent), retrying: OSError(28, 'No space left on device')" in log.getvalue()


@pytest.mark.django_db
def test_a_line_of_a_request_ends_with_its_id(log):
    answer = signed_in(Role.VIEWER).get("/people/")
    assert log.getvalue().endswith(f"[request {answer.headers['X-Request-ID']}]\n")


def refuse_tokens() -> list[str]:
    """Send requests that Django logs with the path of an unused one-time link. Return its tokens."""
    admin = make_user(Role.ADMIN)
    _, invitation = create_invitation(role=Role.VIEWER, by=admin)
    link = create_sign_in_link(user=admin, by=admin)
    assert Client().post(f"/invitations/{invitation}/", {"username": "x", "password": "short"}).status_code == 422
    assert Client(enforce_csrf_checks=True).post(f"/sign-in/{link}/").status_code == 403
    assert Client().get(f"/sign-in/{link}/more").status_code == 404
    return [invitation, link]


@pytest.mark.django_db
def test_one_time_tokens_are_not_logged(log):
    tokens = refuse_tokens()
    assert not [one for one in tokens if one in log.getvalue()]
    assert log.getvalue().count("/sign-in/<str:token>/") == 2
    assert log.getvalue().count("/invitations/<str:token>/") == 1


@pytest.mark.django_db
def test_one_time_tokens_are_not_logged_as_json(json_log):
    tokens = refuse_tokens()
    messages = [entry["message"] for entry in json_log()]
    assert not [one for one in tokens if one in str(json_log())]
    assert ["<str:token>" in message for message in messages] == [True] * 3


@pytest.fixture
def json_log():
    """The JSON objects that the configured handler writes."""
    written = io.StringIO()
    config = deepcopy(settings.LOGGING)
    config["handlers"]["stderr"] |= {"stream": written, "formatter": "json"}
    logging.config.dictConfig(config)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    logging.config.dictConfig(settings.LOGGING)


@pytest.mark.django_db
def test_a_json_line_names_request_and_user(json_log):
    client = signed_in(Role.VIEWER)
    answer = client.get("/people/")
    [entry] = json_log()
    assert entry["level"] == "WARNING"
    assert entry["logger"] == "django.request"
    assert entry["request_id"] == answer.headers["X-Request-ID"]
    assert entry["user_id"] == int(client.session["_auth_user_id"])
    assert "exception" not in entry
    assert datetime.fromisoformat(entry["time"]).tzinfo is not None


def test_a_json_line_names_worker_and_rollout(json_log):
    def work():
        log_context.CURRENT_ROLLOUT.set(SimpleNamespace(rollout_id=7, collection_id=3))
        try:
            raise ValueError("broken\nover two lines")
        except ValueError:
            logging.getLogger("apps.engine").exception("rollout %s failed", 7)

    log_context.set_worker(12)
    try:
        contextvars.copy_context().run(work)
        logging.getLogger("apps.engine").info("idle")
    finally:
        log_context.set_worker(0)
    failed, idle = json_log()
    assert {name: failed[name] for name in ("worker_id", "rollout_id", "collection_id")} == {
        "worker_id": 12,
        "rollout_id": 7,
        "collection_id": 3,
    }
    assert failed["message"] == "rollout 7 failed"
    assert failed["exception"].startswith("Traceback")
    assert (idle["worker_id"], "rollout_id" in idle) == (12, False)


def test_a_json_line_has_no_credential(json_log):
    logging.getLogger("apps.engine").warning("called with %s", "sk-ant-api03-" + "a1B2" * 20)
    [entry] = json_log()
    assert "a1B2a1B2" not in entry["message"]
