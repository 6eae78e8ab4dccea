"""The database stops a slow filter, and the error says how to narrow it."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from apps.accounts.models import Role
from apps.dashboard.tables.neighbours import find_neighbours
from apps.reviews.models import Queue
from apps.reviews.queues.queue_items import ItemSource, QueueRefused, fill_queue
from apps.rollouts.models import Collection, CollectionDeletion, Rollout
from apps.rollouts.search.filters.filter_parser import parse_filter
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, limit_query_time
from apps.rollouts.search.word_index import mark_unindexed
from apps.rollouts.steering.rollout_deletion import RemovalRefused, queue_rollout_deletion
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_rollout, make_user

pytestmark = pytest.mark.django_db
SLOW = " ".join([*(f"-version:*{number}*x*" for number in range(30)), "version:*y*z*"])
"""Of every rollout thirty questions that all have to be asked, and none passes."""


def run_for_ever() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_sleep(60)")
        else:
            cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")


@pytest.fixture
def many(settings: Any) -> Collection:
    """A collection of some hundred rollouts, and no time to read them."""
    collection = make_collection(state="completed")
    first = make_rollout(collection, trace=[], model_version="step-1234567890")
    names = [field.attname for field in Rollout._meta.concrete_fields if field.attname not in {"id", "repeat"}]
    same = {name: getattr(first, name) for name in names}
    Rollout.objects.bulk_create([Rollout(**same, repeat=number) for number in range(1, 600)])
    settings.FILTER_SECONDS = 0.000001
    return collection


def test_what_takes_too_long_is_ended_and_the_connection_goes_on():
    with pytest.raises(FilterTooSlow) as slow, limit_query_time(parse_filter("text:word reward:>0"), seconds=0.2):
        run_for_ever()
    advice = ("0.2 seconds", "(collection:12, dataset:sums)", "(id:>1200)", "rarer words", "remove terms")
    assert [part in str(slow.value) for part in advice] == [True] * 5
    with limit_query_time(parse_filter("reward:>0"), seconds=30):
        assert Rollout.objects.count() == 0
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            assert cursor.fetchone() == ("0",)


def test_no_limit_holds_without_a_filter_and_none_where_the_setting_is_0(settings):
    settings.FILTER_SECONDS = 0
    with limit_query_time(parse_filter("reward:>0")), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    settings.FILTER_SECONDS = 0.000001
    with limit_query_time(parse_filter("")):
        assert list(Rollout.objects.all()) == []


def test_the_page_says_how_to_narrow_a_filter_that_takes_too_long(many):
    page = signed_in().get("/rollouts/", {"q": SLOW})
    assert (page.status_code, page.context["page"].rows) == (200, [])
    assert "add a collection or a dataset (collection:12, dataset:sums)" in page.text
    assert 'hx-get="/rollouts/facets/' not in page.text
    assert "Counting took too long" in signed_in().get("/rollouts/facets/", {"q": SLOW}).text
    of_it = signed_in().get(f"/collections/{many.pk}/", {"q": f"collection:{many.pk} {SLOW}"})
    assert "This takes too long" in of_it.text
    assert "add a collection or a dataset" not in of_it.text
    # Without a filter the newest are there as ever.
    assert len(signed_in().get("/rollouts/").context["page"].rows) == 50


def test_the_api_answers_a_problem_that_says_so(many):
    answer = signed_in().get("/api/v1/rollouts/", {"q": SLOW})
    problem = answer.json()
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert (problem["type"], problem["errors"][0]["pointer"]) == ("urn:gymweb:problem:filter-too-slow", "?q")
    assert "search only the newest rollouts (id:>1200)" in problem["detail"]


def test_a_trace_opens_without_its_neighbours_where_the_list_takes_too_long(many):
    rollout = Rollout.objects.order_by("pk")[100]
    assert find_neighbours(f"q={SLOW}".replace(" ", "+"), rollout) == (None, None)


def test_queues_and_deletions_by_a_filter_refuse_in_their_own_words(many):
    with pytest.raises(QueueRefused, match="seconds because it reads too many rollouts") as refused:
        fill_queue(Queue(kind="rubric"), ItemSource(filter=SLOW))
    assert refused.value.argument == "filter"
    with pytest.raises(RemovalRefused, match="Counting the matches took too long, so nothing was deleted"):
        queue_rollout_deletion(collection=many, chosen={"q": SLOW}, user=make_user(Role.ENGINEER))
    assert CollectionDeletion.objects.count() == 0


def test_the_api_says_of_a_search_how_many_rollouts_no_text_finds_yet():
    client: Client = signed_in()
    rollouts = [make_rollout(make_collection()) for _ in range(2)]
    mark_unindexed([each.pk for each in rollouts])
    assert client.get("/api/v1/rollouts/", {"q": "text:word"}).json()["unindexed"] == 2
    assert client.get("/api/v1/rollouts/", {"q": "-reward:*"}).json()["unindexed"] is None
