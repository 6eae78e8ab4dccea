import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.rollouts.models import Worker
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db


def make_worker(**fields: object) -> Worker:
    soon = timezone.now() + timedelta(seconds=30)
    return Worker.objects.create(**{"host": "h", "pid": 1, "seats": 8, "busy": 3, "lease_expires_at": soon, **fields})


def test_the_list_says_who_lives_and_how_busy_each_is():
    make_worker(host="alpha", pid=77)
    long_ago = timezone.now() - timedelta(minutes=3)
    make_worker(heartbeat_at=long_ago, lease_expires_at=long_ago)
    make_worker(state="stopped", busy=0)
    page = squeezed(signed_in().get(reverse("dashboard:worker_list")).text)
    assert "<dt>Live workers</dt><dd>1</dd>" in page
    assert "<dd>3 <small>of 8</small></dd>" in page
    assert "alpha, process 77" in page
    assert "3 min ago" in page
    assert page.count("lease ran out") == 1


def test_no_worker_says_how_to_start_one():
    assert "manage.py rolloutworker" in signed_in().get(reverse("dashboard:worker_list")).text


def test_the_list_takes_as_many_queries_for_three_rows_as_for_one():
    one, three = queries_with_one_and_three(lambda: reverse("dashboard:worker_list"), make_worker)
    assert one == three


def test_the_live_come_first_then_the_last_that_ended_and_a_count_of_the_rest():
    living = make_worker(host="old-but-alive")
    ended = [make_worker(state="stopped", busy=0) for _ in range(23)]
    page = signed_in().get(reverse("dashboard:worker_list"))
    shown = [worker.pk for worker, _, _ in page.context["rows"]]
    assert shown == [living.pk, *(worker.pk for worker in reversed(ended[3:]))]
    assert "3 more that ended earlier are not shown." in page.text


def test_htmx_gets_the_table_alone():
    page = signed_in().get(reverse("dashboard:worker_list"), headers={"HX-Request": "true"}).text
    assert "<html" not in page


def test_the_pill_counts_rows_that_run_and_never_more_than_seats():
    worker, collection = make_worker(seats=2, busy=0), make_collection()
    client = signed_in()
    said = []
    for _ in range(3):
        make_rollout(collection, status="running", lease=worker.pk, reward=None, stop_reason="", trace=[])
        said.append(re.search(r"\d+/\d+ busy", client.get(reverse("dashboard:worker_list")).text)[0])
    assert said == ["1/2 busy", "2/2 busy", "2/2 busy"]
