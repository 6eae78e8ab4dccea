"""The outcome of the verdicts about two rollouts."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import Role
from apps.reviews.agreement.decisions import read_verdicts
from apps.reviews.models import PairVerdict, Queue, QueueItem, Review
from tests.factories import make_collection, make_rollout, make_user

pytestmark = pytest.mark.django_db


class Bench:
    """Two rollouts in one item, and reviews of them as rows."""

    def __init__(self) -> None:
        self.collection = make_collection()
        self.low, self.high = (make_rollout(self.collection).pk for _ in range(2))
        self.queue = Queue.objects.create(name="q", kind="pairwise")
        task = self.collection.rollouts.get(pk=self.low).task
        self.item = QueueItem.objects.create(queue=self.queue, task=task, size=2, shuffle=0)
        self.now = timezone.now()

    def say(self, outcome: str, strength: int = 1, **fields: Any) -> Review:
        self.now += timedelta(seconds=1)
        given = {"reviewer": fields.pop("reviewer", None) or make_user(Role.ANNOTATOR), **fields}
        review = Review.objects.create(
            queue=self.queue, item=self.item, status="submitted", submitted_at=self.now, **given
        )
        strength = strength if outcome in {"low", "high"} else 0
        PairVerdict.objects.create(
            review=review, low_id=self.low, high_id=self.high, outcome=outcome, strength=strength
        )
        return review

    def read(self):
        return read_verdicts(self.collection).get((self.low, self.high))


@pytest.fixture
def bench():
    return Bench()


def test_without_a_verdict_there_is_no_result(bench):
    assert read_verdicts(bench.collection) == {}


def test_a_single_verdict_decides(bench):
    review = bench.say("high", 2)
    found = bench.read()
    assert (found.winner, found.loser, found.strength, found.how) == (bench.high, bench.low, 2, "single")
    assert (found.reviewers, found.agreeing, found.reviews) == (1, 1, [review.pk])


def test_the_majority_decides_and_is_strong_if_half_of_it_is(bench):
    bench.say("low", 2)
    bench.say("low", 1)
    bench.say("high", 2)
    found = bench.read()
    assert (found.winner, found.strength, found.how, found.reviewers, found.agreeing) == (
        bench.low,
        2,
        "majority",
        3,
        2,
    )


def test_a_tie_is_split_until_adjudicated(bench):
    bench.say("low")
    bench.say("both_bad")
    assert (bench.read().outcome, bench.read().winner, bench.read().how) == ("split", None, "split")
    bench.say("high", 1, is_adjudication=True)
    found = bench.read()
    assert (found.winner, found.how, found.reviewers, found.agreeing) == (bench.high, "adjudicated", 2, 0)


def test_equal_and_both_bad_have_no_winner(bench):
    bench.say("equal")
    found = bench.read()
    assert (found.outcome, found.winner, found.loser, found.strength) == ("equal", None, None, 0)


def test_a_hidden_repeat_counts_nothing(bench):
    person = make_user(Role.ANNOTATOR)
    first = bench.say("low", reviewer=person)
    bench.say("high", reviewer=person, repeat_of=first)
    assert (bench.read().winner, bench.read().reviewers) == (bench.low, 1)


def test_reopened_reviews_do_not_count(bench):
    review = bench.say("low")
    Review.objects.filter(pk=review.pk).update(status="open", leased_until=timezone.now())
    assert bench.read() is None


def test_the_last_verdict_of_a_reviewer_counts(bench):
    person = make_user(Role.ANNOTATOR)
    bench.say("low", reviewer=person)
    bench.item = QueueItem.objects.create(queue=bench.queue, task=bench.item.task, size=2, shuffle=1)
    bench.say("high", reviewer=person)
    assert (bench.read().winner, bench.read().reviewers) == (bench.high, 1)


def test_verdicts_of_a_collection_take_one_query(bench, django_assert_num_queries):
    bench.say("low")
    with django_assert_num_queries(1):
        assert list(read_verdicts(bench.collection)) == [(bench.low, bench.high)]
    assert read_verdicts(make_collection()) == {}
    assert read_verdicts(rollout_ids=[bench.low]) == {}
    assert list(read_verdicts(rollout_ids=[bench.low, bench.high])) == [(bench.low, bench.high)]


def test_two_of_different_collections_are_found_by_either_of_them_which_it_says(bench, django_assert_num_queries):
    other = make_collection()
    bench.high = make_rollout(other).pk
    review = bench.say("high")
    for collection in (bench.collection, other):
        with django_assert_num_queries(1):
            (found,) = read_verdicts(collection).values()
        assert (found.low, found.high, found.winner, found.reviews) == (bench.low, bench.high, bench.high, [review.pk])
        assert (found.low_collection, found.high_collection) == (bench.collection.pk, other.pk)
        assert found.low_collection != found.high_collection
