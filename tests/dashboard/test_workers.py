import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Role
from apps.rollouts.models import Worker
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_rollout, make_worker

pytestmark = pytest.mark.django_db


def test_the_list_says_who_lives_and_how_busy_each_is():
    alpha, collection = make_worker(host="alpha", pid=77), make_collection()
    for _ in range(3):
        make_rollout(collection, status="running", lease=alpha.pk, reward=None, stop_reason="", trace=[])
    long_ago = timezone.now() - timedelta(minutes=3)
    make_worker(heartbeat_at=long_ago, lease_expires_at=long_ago)
    make_worker(state="stopped", busy=0)
    page = squeezed(signed_in().get(reverse("dashboard:worker_list")).text)
    assert "<dt>Running workers</dt><dd>1</dd>" in page
    assert "<dd>3 <small>of 8</small></dd>" in page
    assert "alpha, process 77" in page
    assert re.search(r"3 min( 0\d s)? ago", page)
    assert page.count("no heartbeat</span>") == 1


def test_queued_rollouts_are_counted_without_those_of_paused_collections():
    make_worker()
    make_collection(total=5, completed=2)
    make_collection(total=7, state="paused", pause_reason="asked")
    assert signed_in().get(reverse("dashboard:worker_list")).context["queued"] == 3


def test_no_worker_says_how_to_start_one():
    assert "manage.py rolloutworker" in signed_in().get(reverse("dashboard:worker_list")).text


def test_the_list_takes_as_many_queries_for_three_rows_as_for_one():
    one, three = queries_with_one_and_three(lambda: reverse("dashboard:worker_list"), make_worker)
    assert one == three


def test_the_live_come_first_then_the_last_that_ended_and_a_count_of_the_rest():
    living = make_worker(host="old-but-alive")
    ended = [make_worker(state="stopped", busy=0) for _ in range(23)]
    page = signed_in().get(reverse("dashboard:worker_list"))
    shown = {part: [row.worker.pk for row in page.context[part]] for part in ("live", "stale", "ended")}
    assert shown == {"live": [living.pk], "stale": [], "ended": [worker.pk for worker in reversed(ended[3:])]}
    assert "3 earlier workers are not shown" in page.text


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


def test_a_worker_says_its_group_its_rate_its_trouble_and_what_it_runs():
    worker, collection = make_worker(group="gpu", backlog=1200, meters={"rate": 12.25}), make_collection()
    Worker.objects.update(trouble="No rollouts can be claimed: <disk full>")
    make_rollout(collection, status="running", lease=worker.pk, reward=None, stop_reason="", trace=[])
    page = squeezed(signed_in().get(reverse("dashboard:worker_list")).text)
    for part in ["group gpu", '<td class="num" data-label="finished /s">12.2</td>', "1,200", "&lt;disk full&gt;"]:
        assert part in page
    link = f"{reverse('dashboard:rollout_list')}?worker={worker.pk}"
    assert f'href="{link}">1 / {worker.seats}<' in page
    assert "/rollouts/" in signed_in().get(link).text


def test_the_rollouts_of_a_worker_are_those_it_runs_now():
    worker, other, collection = make_worker(), make_worker(), make_collection()
    runs = {"status": "running", "reward": None, "stop_reason": "", "trace": []}
    mine = make_rollout(collection, lease=worker.pk, **runs)
    make_rollout(collection, lease=other.pk, **runs)
    make_rollout(collection)
    page = signed_in().get(reverse("dashboard:rollout_list"), {"worker": worker.pk})
    assert [row.pk for row in page.context["page"].rows] == [mine.pk]


def test_an_engineer_drains_a_worker_and_a_viewer_cannot():
    worker = make_worker()
    address = reverse("dashboard:worker_drain", args=[worker.pk])
    viewer = signed_in(Role.VIEWER)
    assert (viewer.post(address).status_code, address in viewer.get(reverse("dashboard:worker_list")).text) == (
        403,
        False,
    )
    client = signed_in()
    assert address in client.get(reverse("dashboard:worker_list")).text
    done = client.post(address, follow=True)
    assert f"Worker #{worker.pk} drains" in done.text
    assert address not in done.text
    assert Worker.objects.get().state == "draining"


def test_draining_one_that_has_left_says_so():
    worker = make_worker(state="stopped")
    done = signed_in().post(reverse("dashboard:worker_drain", args=[worker.pk]), follow=True)
    assert "is stopped" in done.text
    assert Worker.objects.get().state == "stopped"
