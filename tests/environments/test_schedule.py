"""Health checks on a schedule: due times are rows that any worker claims."""

import socket
import threading
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.environments import environment_health
from apps.environments.environment_changes import save_environment
from apps.environments.environment_health import is_held_back, probe_due_environments, probe_environment, worker_group
from apps.environments.models import Environment
from apps.gym import process_exit
from tests.environments.flag import FlagServer
from tests.factories import make_environment

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick(settings, monkeypatch):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    settings.PROBE_SECONDS = 60.0
    monkeypatch.setattr(environment_health, "SECOND_LOOK_SECONDS", 0.01)


@pytest.fixture
def server():
    with FlagServer() as running:
        yield running


def make_lab(base_url, **fields):
    given = {"slug": "lab", "name": "Lab", "adapter": "http", "base_url": base_url, **fields}
    return save_environment(environment=Environment(**given), user=None)


def due_in(environment):
    environment.refresh_from_db()
    return (environment.probe_due_at - timezone.now()).total_seconds()


def make_due():
    Environment.objects.update(probe_due_at=timezone.now() - timedelta(seconds=1))


def test_a_new_environment_is_due_at_once_and_then_after_the_interval(server):
    lab = make_lab(server.url)
    assert probe_due_environments() is True
    assert 59 < due_in(lab) <= 60
    assert (lab.health, lab.survey["tools"][0]["name"]) == ("healthy", "get_weather")
    assert probe_due_environments() is False


@pytest.mark.parametrize("description", ["x" * 600_000, "no\0thing"])
def test_what_cannot_be_kept_of_a_survey_is_left_to_the_attempts(server, description):
    server.describe(description)
    lab = make_lab(server.url)
    probe_due_environments()
    lab.refresh_from_db()
    assert (lab.health, lab.survey) == ("healthy", {})


def test_what_runs_in_process_is_never_due():
    make_environment(builtin="calculator")
    Environment.objects.update(probe_due_at=timezone.now() - timedelta(seconds=1))
    assert probe_due_environments() is False


def test_a_row_that_never_had_a_due_time_is_due(server):
    make_environment(adapter="http", builtin="", base_url=server.url)
    assert probe_due_environments() is True


def test_a_server_that_was_only_busy_is_looked_at_twice(server):
    lab = make_lab(server.url)
    server.fail_next(2)  # both calls of one look
    probe_due_environments()
    lab.refresh_from_db()
    assert (lab.health, lab.unwell_since, server.asked) == ("healthy", None, 4)


def test_a_server_that_is_unwell_is_asked_again_soon_and_later_less_often(server):
    lab = make_lab(server.url)
    server.is_well = False
    probe_due_environments()
    assert 4 < due_in(lab) <= 5
    assert (lab.health, lab.health_message[:18]) == ("unhealthy", "GET / returned 503")
    Environment.objects.update(unwell_since=timezone.now() - timedelta(seconds=30))
    make_due()
    probe_due_environments()
    assert 28 < due_in(lab) <= 31
    Environment.objects.update(unwell_since=timezone.now() - timedelta(hours=3))
    make_due()
    probe_due_environments()
    assert 58 < due_in(lab) <= 60


def test_a_server_that_is_well_again_comes_back_by_itself(server):
    lab = make_lab(server.url)
    server.is_well = False
    probe_due_environments()
    server.is_well = True
    make_due()
    probe_due_environments()
    lab.refresh_from_db()
    assert (lab.health, lab.unwell_since) == ("healthy", None)


def test_many_are_asked_at_once(server):
    for number in range(20):
        make_lab(server.url, slug=f"lab-{number}", name=f"Lab {number}")
    assert [probe_due_environments() for _ in range(3)] == [True, True, False]
    assert Environment.objects.filter(health="healthy", adapter="http").count() == 20


def test_a_check_that_another_worker_has_taken_is_not_made_twice(server, monkeypatch):
    make_lab(server.url)
    claimed = environment_health._claim_due()
    assert [environment.slug for environment in claimed] == ["lab"]
    assert environment_health._claim_due() == []


def test_a_verdict_about_a_server_that_was_replaced_meanwhile_is_dropped(server):
    lab = make_lab(server.url)
    stale = Environment.objects.get(pk=lab.pk)
    lab.base_url = "https://other.example.org"
    save_environment(environment=lab, user=None)
    probe_environment(environment=stale)
    lab.refresh_from_db()
    assert (lab.health, lab.survey) == ("unknown", {})


def test_a_check_that_hangs_holds_up_no_worker_that_leaves(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        make_lab(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        asked = threading.Event()
        monkeypatch.setattr(process_exit._here, "leaving", asked, raising=False)
        threading.Timer(0.5, asked.set).start()
        with pytest.raises(process_exit.Leaving):
            probe_due_environments()


def test_a_server_that_does_not_answer_is_unwell_after_its_time(monkeypatch):
    monkeypatch.setattr(environment_health, "LOOK_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        lab = make_lab(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        probe_due_environments()
    lab.refresh_from_db()
    assert (lab.health, lab.health_message) == ("unhealthy", "no answer within 0.2 s")


@pytest.mark.parametrize(("group", "asked"), [("", False), ("gpu", True), ("other", False)])
def test_what_belongs_to_a_group_is_asked_by_its_workers_alone(server, group, asked):
    make_lab(server.url, worker_group="gpu")
    token = worker_group.set(group)
    try:
        assert probe_due_environments() is asked
    finally:
        worker_group.reset(token)


@pytest.mark.parametrize(
    ("adapter", "health", "age", "held"),
    [
        ("http", "unhealthy", 0, True),
        ("gymnasium", "unhealthy", 170, True),
        ("mcp_process", "unhealthy", 0, True),
        ("http", "unhealthy", 181, False),  # nobody asks any more
        ("http", "healthy", 0, False),
        ("http", "unknown", 0, False),
        ("builtin", "unhealthy", 0, False),
        ("declared", "unhealthy", 0, False),
    ],
)
def test_only_a_fresh_verdict_about_a_server_holds_rollouts_back(adapter, health, age, held):
    now = timezone.now()
    assert is_held_back(adapter, health, now - timedelta(seconds=age), now) is held
    assert is_held_back(adapter, health, None, now) is False
