from datetime import timedelta

from django.test import Client
from django.utils import timezone

from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection, Rollout, Worker
from tests.factories import make_collection, make_dataset, make_rollout, make_user


def test_an_empty_place_shows_the_first_steps_with_curl(pages: Client):
    PolicyModel.objects.all().delete()
    page = pages.get("/")
    assert [step.done for step in page.context["steps"]] == [False, False, False]
    assert "curl -X POST http://testserver/api/v1/datasets/my-tasks/uploads/" in page.text.replace("&#x27;", "'")


def test_steps_that_are_done_say_so(pages: Client):
    make_dataset(slug="sums")
    page = pages.get("/")
    assert page.context["steps"][0].done is True
    assert "· done" in page.text


def test_collections_show_progress_reward_and_failures_by_cause(pages: Client):
    going = make_collection(name="Going", total=8, completed=2, failed=2, rewarded=2, reward_sum=1.0)
    for repeat in range(2):
        make_rollout(
            going,
            trace=[],
            repeat=repeat,
            status=Rollout.Status.FAILED,
            reward=None,
            stop_reason="",
            error_kind="timed_out",
        )
    make_collection(
        name="Done",
        state=Collection.State.COMPLETED,
        total=4,
        completed=4,
        rewarded=4,
        reward_sum=3.0,
        finished_at=timezone.now(),
    )
    page = pages.get("/")
    assert [c.name for c in page.context["active"]] == ["Going"]
    assert [c.name for c in page.context["latest"]] == ["Done"]
    assert [(row["error_kind"], row["count"]) for row in page.context["failures"]] == [("timed_out", 2)]
    assert '<progress max="8" value="4"' in page.text
    assert "0.75" in page.text
    assert "scripted, no LLM" in page.text


def test_the_worker_pill_counts_seats_of_live_workers_and_names_stale_ones(pages: Client):
    assert "no worker" in pages.get("/").text
    now = timezone.now()
    Worker.objects.create(host="a", pid=1, seats=16, busy=12, lease_expires_at=now + timedelta(seconds=30))
    assert "0/16 busy" in pages.get("/").text
    Worker.objects.create(host="b", pid=2, seats=16, busy=3, lease_expires_at=now - timedelta(seconds=1))
    assert "0/16 busy · 1 stale" in pages.get("/").text


def test_the_navigation_marks_where_one_is(pages: Client):
    page = pages.get("/agents/").text
    assert page.count('aria-current="page"') == 2  # the menu and the side show the same navigation
    assert '<a href="/agents/" aria-current="page">' in page


def test_hostile_names_stay_text(pages: Client):
    make_collection(name='<script>alert(1)</script>" onmouseover="alert(2)')
    page = pages.get("/").text
    assert "<script>alert(1)" not in page
    assert '" onmouseover="' not in page


def test_htmx_gets_the_fragment_alone(pages: Client):
    reply = pages.get("/", headers={"HX-Request": "true"})
    assert "<html" not in reply.text
    assert "HX-Request" in reply["Vary"]


def test_every_role_sees_home(db: None):
    for role in ("viewer", "annotator", "engineer", "admin"):
        client = Client()
        client.force_login(make_user(role))
        assert client.get("/").status_code == 200


def test_home_follows_what_goes_on_and_rests_when_nothing_does(pages: Client):
    collection = make_collection(total=8, state="paused", pause_reason="asked")
    assert 'hx-get="/" hx-trigger="every 5s"' in pages.get("/").text
    fragment = pages.get("/", headers={"HX-Request": "true"}).text
    assert ("<html" in fragment, 'hx-swap-oob="outerHTML:.worker-pill"' in fragment) == (False, True)
    Collection.objects.filter(pk=collection.pk).update(state="completed", pause_reason="", finished_at=timezone.now())
    assert "every 5s" not in pages.get("/").text
