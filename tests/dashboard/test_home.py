from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.exports.models import Export
from apps.gym.metrics.clustered_intervals import wilson
from apps.pairs.models import PairSet
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection, CollectionDeletion, Reverification, Rollout, Worker
from apps.rollouts.plans.sample_data import SLUG
from apps.tasks.models import Upload
from tests.dashboard.markup import faults
from tests.dashboard.pages import queries_with_one_and_three, signed_in
from tests.factories import (
    make_agent,
    make_breaker,
    make_collection,
    make_dataset,
    make_environment,
    make_policy_model,
    make_rollout,
    make_row,
    make_user,
)
from tests.reviews.queues import annotator, claim, make_queue


def test_an_empty_place_shows_the_first_steps_with_curl(pages: Client):
    PolicyModel.objects.all().delete()
    page = pages.get("/")
    assert [step.done for step in page.context["steps"]] == [False] * 5
    assert "python manage.py collect --dataset my-tasks" in page.text
    assert "curl -X POST http://testserver/api/v1/datasets/my-tasks/uploads/" in page.text.replace("&#x27;", "'")


def test_steps_that_are_done_say_so(pages: Client):
    make_dataset(slug="sums")
    page = pages.get("/")
    assert [step.done for step in page.context["steps"]] == [True, False, False, False, False]
    assert "· done" in page.text


def test_steps_tick_themselves_until_all_are_done(pages: Client):
    collection = make_collection(state="completed", total=2, completed=2, rewarded=2, reward_sum=1.0)
    make_dataset(slug="sums")
    steps = pages.get("/").context["steps"]
    assert [step.done for step in steps] == [True, True, True, False, False]
    assert steps[3].url == f"/pair-sets/new/?collection={collection.pk}"
    Export.objects.create(format="trl_sft", collection=collection, state="ready", path="x", sha256="y")
    assert [step.done for step in pages.get("/").context["steps"]] == [True, True, True, False, True]
    PairSet.objects.create(collection=collection, state="ready")
    page = pages.get("/")
    assert (page.context["steps"], page.context["is_new"]) == ([], False)


def test_steps_can_be_hidden_after_the_first_collection(pages: Client):
    assert pages.post("/first-steps/hide/")["Location"] == "/"
    assert pages.get("/").context["steps"] != []
    make_collection(state="completed")
    assert pages.get("/").context["steps"] == []
    pages.cookies.clear()
    pages.force_login(make_user("engineer"))
    assert "Hide" in pages.get("/").text


def test_sample_data_is_one_click_from_an_empty_overview(pages: Client):
    reply = pages.post("/sample-data/")
    collection = Collection.objects.get()
    assert reply["Location"] == f"/collections/{collection.pk}/"
    assert (collection.total, collection.policy_model.slug, collection.dataset.slug) == (320, "scripted", SLUG)
    assert pages.post("/sample-data/")["Location"] == reply["Location"]
    assert signed_in("viewer").post("/sample-data/").status_code == 403


def test_the_overview_shows_the_trend_of_each_dataset_newest_first(pages: Client):
    sums, words = make_dataset(slug="sums"), make_dataset(slug="words")
    agent = make_agent()
    for dataset, total in ((words, 1.0), (sums, 1.0), (sums, 2.0)):
        make_collection(
            dataset=dataset, agent=agent, state="completed", total=2, completed=2, rewarded=2, reward_sum=total
        )
    make_dataset(slug="untried")
    trends = pages.get("/").context["trends"]
    assert [(each.slug, each.trend.mean_reward) for each in trends] == [("sums", 1.0), ("words", 0.5)]
    assert trends[0].trend.sparkline is not None


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
    assert [each.collection.name for each in page.context["active"]] == ["Going"]
    assert [each.collection.name for each in page.context["latest"]] == ["Done"]
    assert [(each.error_kind, each.count) for each in page.context["failures"]] == [("timed_out", 2)]
    listed = pages.get("/rollouts/", {"q": page.context["failures"][0].filter})
    assert len(listed.context["page"].rows) == 2
    assert 'aria-label="2 completed, 2 failed, 0 cancelled, 0 running, 4 queued"' in page.text
    assert "0.75" in page.text
    assert "scripted, no LLM" in page.text


def test_the_worker_pill_counts_seats_of_live_workers_and_names_stale_ones(pages: Client):
    assert "no worker" in pages.get("/").text
    now = timezone.now()
    Worker.objects.create(host="a", pid=1, seats=16, busy=12, lease_expires_at=now + timedelta(seconds=30))
    assert "0/16 busy" in pages.get("/").text
    Worker.objects.create(host="b", pid=2, seats=16, busy=3, lease_expires_at=now - timedelta(seconds=1))
    assert "0/16 busy · 1 unresponsive" in pages.get("/").text


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


def test_every_role_that_reads_sees_home(db: None):
    for role in ("viewer", "engineer", "admin"):
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


def test_a_result_is_compared_with_the_previous_one_of_dataset_and_agent(pages: Client):
    dataset, agent = make_dataset([make_row(str(number)) for number in range(10)]), make_agent()
    made = []
    for solved in (1, 9):
        rewards = [1.0] * solved + [0.0] * (10 - solved)
        given = {"state": "completed", "total": 10, "completed": 10, "rewarded": 10, "reward_sum": sum(rewards)}
        collection = make_collection(dataset=dataset, agent=agent, **given)
        for reward, task in zip(rewards, dataset.tasks.order_by("index"), strict=True):
            make_rollout(collection, task=task, reward=reward, trace=[])
        made.append(collection)
    make_collection(dataset=dataset, state="completed", total=1)
    shown = {each.collection.pk: each for each in pages.get("/").context["latest"]}
    before, after = (shown[each.pk] for each in made)
    assert (before.previous, before.difference) == (None, None)
    assert (after.previous, after.difference) == (made[0], pytest.approx(0.8))
    assert after.interval == pytest.approx(wilson(0.9, 10, 1.959964), abs=1e-6)
    assert after.direction == "up"


def test_a_difference_within_the_noise_is_no_news(pages: Client):
    dataset, agent = make_dataset([make_row(str(number)) for number in range(5)]), make_agent()
    for low in (0.4, 0.41):
        rewards = (low, 1.0, 0.0, 1.0, 0.5)
        given = {"state": "completed", "total": 5, "completed": 5, "rewarded": 5, "reward_sum": sum(rewards)}
        collection = make_collection(dataset=dataset, agent=agent, **given)
        for reward, task in zip(rewards, dataset.tasks.order_by("index"), strict=True):
            make_rollout(collection, task=task, reward=reward, trace=[])
    assert pages.get("/").context["latest"][0].direction == "same"


def test_the_overview_takes_as_many_queries_for_three_collections_as_for_one(db: None):
    def add() -> None:
        given = {"total": 2, "completed": 1, "failed": 1, "rewarded": 1, "reward_sum": 1.0}
        make_rollout(make_collection(**given))
        make_rollout(make_collection(state="completed", **given))

    one, three = queries_with_one_and_three(lambda: "/", add)
    assert one == three


def test_the_activity_menu_shows_background_work_and_alerts(pages: Client):
    collection = make_collection(name="Sums", state="completed")
    Upload.objects.create(dataset=collection.dataset, state="loading", received_bytes=200, read_bytes=50)
    Export.objects.create(format="trl_sft", collection=collection, state="writing")
    Reverification.objects.create(collection=collection, state="verifying", total=4, verified=1, failed=1)
    CollectionDeletion.objects.create(name="#9 Old", state="deleting", total=4, deleted=3)
    make_breaker(policy_model=make_policy_model(name="Flaky"), message="503 in a row")
    make_environment(name="Ill", health="unhealthy", health_message="refused")
    make_collection(name="Spent", state="paused", pause_reason="max_cost")
    make_collection(name="On purpose", state="paused", pause_reason="asked")
    found = pages.get("/activity/").context["happening"]
    assert [(each.what, each.share) for each in found.tasks] == [
        ("upload", 0.25),
        ("export", None),
        ("reverification", 0.5),
        ("deletion", 0.75),
    ]
    assert [(each.what, each.says) for each in found.alerts] == [
        ("breaker open", "503 in a row"),
        ("environment unhealthy", "refused"),
        ("paused", "the cost limit is reached: raise or remove the cost limit"),
    ]
    page = pages.get("/agents/").text
    assert (page.count("3 alerts"), page.count("4 in progress")) == (2, 2)
    assert page.count('hx-get="/activity/"') == 2


def test_the_activity_menu_stops_polling_when_idle(pages: Client):
    assert pages.get("/activity/", headers={"HX-Request": "true"}).status_code == 286
    Export.objects.create(format="trl_sft", collection=make_collection(), state="queued")
    reply = pages.get("/activity/", headers={"HX-Request": "true"})
    assert (reply.status_code, "<html" in reply.text) == (200, False)
    assert 'hx-swap-oob="innerHTML:.activity-count"' in reply.text


def test_the_activity_menu_takes_one_query(pages: Client):
    with CaptureQueriesContext(connection) as queries:
        pages.get("/agents/")
    assert len([each for each in queries if "UNION ALL" in each["sql"]]) == 1


def test_the_overview_lists_waiting_reviews_with_a_link(pages: Client, engineer):
    queue = make_queue(name="Sums, by hand", pairs=3)
    page = pages.get("/").text
    assert [(each.left, each.is_begun) for each in pages.get("/").context["waiting"]] == [(3, False)]
    assert (faults(page), f'action="/queues/{queue.pk}/review/"' in page) == ([], True)
    assert pages.post(f"/queues/{queue.pk}/review/")["Location"] == f"/queues/{queue.pk}/review/"
    assert [(each.left, each.is_begun) for each in pages.get("/").context["waiting"]] == [(3, True)]
    assert "To review" not in signed_in("viewer").get("/").text


def test_an_annotator_starts_on_the_queues_and_sees_no_overview(db: None):
    open_one = {"shows_expected": True, "shows_reward": True, "shows_model": True}
    ann, client = annotator(), Client()
    client.force_login(ann)
    make_queue(name="Told", **open_one)
    assert client.get("/")["Location"] == "/queues/"
    claim(make_queue(name="Blind", pairs=5), ann)
    rows = client.get("/queues/").context["rows"]
    assert [(queue.name, waiting.left) for queue, waiting, *_ in rows] == [("Blind", 5), ("Told", 3)]


def test_the_overview_takes_as_many_queries_for_three_queues_as_for_one(db: None):
    make_collection(state="completed")
    one, three = queries_with_one_and_three(lambda: "/", make_queue)
    assert one == three
