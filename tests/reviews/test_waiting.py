"""How much is left for whom: what `claim_item` would give them, counted without giving it."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import Role, User
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_leases import claim_item, skip_item
from apps.reviews.queues.queue_changes import close_queue
from apps.reviews.queues.waiting_items import read_waiting
from tests.factories import make_user
from tests.reviews.queues import annotator, claim, judge, make_queue, say

pytestmark = pytest.mark.django_db


def left(user: User) -> dict[str, int]:
    return {each.queue.name: each.left for each in read_waiting(user)}


def test_each_review_reduces_the_items_left():
    queue, ann = make_queue(pairs=14, repeat_share=0.3), annotator()
    assert queue.items.filter(is_repeated=True).count() == 4
    numbers = []
    while (review := claim_item(queue=queue, user=ann)) is not None:
        held = left(ann).get("Queue", 0)
        say(review)
        numbers.append((held, left(ann).get("Queue", 0)))
    # Holding an item changes nothing, and a hidden repeat counts down like every other.
    assert numbers == [(number, number - 1) for number in range(18, 0, -1)]


def test_what_others_hold_or_finished_is_not_left_and_what_lapsed_is():
    queue, ann, ben = make_queue(pairs=3), annotator(), annotator()
    judge(queue, ben)
    held = claim(queue, ben)
    assert (left(ann), left(ben)) == ({"Queue": 1}, {"Queue": 2})
    Review.objects.filter(pk=held.pk).update(leased_until=timezone.now() - timedelta(seconds=1))
    assert (left(ann), left(ben)) == ({"Queue": 2}, {"Queue": 2})
    claim(queue, ann)
    held.refresh_from_db()
    assert (held.status, left(ann), left(ben)) == ("lapsed", {"Queue": 2}, {"Queue": 1})


def test_what_one_skipped_and_what_lost_a_rollout_is_not_left():
    queue, ann = make_queue(pairs=3), annotator()
    skip_item(review=claim(queue, ann), user=ann, reason="too long")
    assert left(ann) == {"Queue": 2}
    queue.items.exclude(reviews__reviewer=ann).first().entries.first().rollout.delete()
    assert left(ann) == {"Queue": 1}


def test_a_reviewer_sees_own_open_queues_with_held_items_first():
    ann = annotator()
    make_queue(name="Anybody's")
    make_queue(name="Named", reviewers=[ann])
    make_queue(name="Of others", reviewers=[annotator()])
    close_queue(queue=make_queue(name="Closed"), user=make_user(Role.ENGINEER))
    assert [each.queue.name for each in read_waiting(ann)] == ["Named", "Anybody's"]
    claim(Queue.objects.get(name="Anybody's"), ann)
    assert [(each.queue.name, each.is_begun) for each in read_waiting(ann)] == [("Anybody's", True), ("Named", False)]
    assert read_waiting(make_user(Role.VIEWER)) == []


def test_four_queries_whatever_the_number_of_queues():
    ann = annotator()
    counts = []
    for more in (1, 2):
        for _ in range(more):
            claim(make_queue(), ann)
        with CaptureQueriesContext(connection) as queries:
            assert len(read_waiting(ann)) == len(counts) * 2 + 1
        counts.append(len(queries))
    assert counts == [4, 4]
