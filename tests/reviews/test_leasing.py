"""Who is given which item, for how long, on which sides, and that no two are given the same place."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.utils import timezone

from apps.accounts.models import Role
from apps.reviews.agreement.queue_agreement import read_progress
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_leases import (
    CannotReview,
    LeaseLost,
    claim_item,
    find_open_review,
    renew_lease,
    skip_item,
)
from apps.reviews.queues.queue_changes import close_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.reviews.queues.side_order import MOST_APART
from tests.factories import make_user
from tests.reviews.queues import annotator, claim, judge, make_queue, say


def expire(review: Review) -> None:
    Review.objects.filter(pk=review.pk).update(leased_until=timezone.now() - timedelta(seconds=1))


@pytest.mark.django_db
def test_who_asks_again_has_the_same_item_for_longer():
    queue, ann = make_queue(), annotator()
    first = claim(queue, ann)
    expire(first)
    again = claim(queue, ann)
    assert (again.pk, again.leased_until > timezone.now() + timedelta(minutes=14)) == (first.pk, True)


@pytest.mark.django_db
def test_two_people_are_given_different_items_and_each_item_as_often_as_it_overlaps():
    queue = make_queue(pairs=2, overlap=2)
    people = [annotator() for _ in range(4)]
    given = [(claim(queue, each).item_id, claim(queue, each).slot) for each in people]
    assert len(set(given)) == 4
    assert sorted(Counter(item for item, _ in given).values()) == [2, 2]
    assert claim_item(queue=queue, user=annotator()) is None


@pytest.mark.django_db
def test_an_item_whose_lease_ran_out_goes_to_another_and_its_draft_stays():
    queue, ann, ben = make_queue(pairs=1), annotator(), annotator()
    left = claim(queue, ann)
    renew_lease(review=left, user=ann, draft={"note": "half"})
    assert claim_item(queue=queue, user=ben) is None
    expire(left)
    assert claim(queue, ben).item_id == left.item_id
    with pytest.raises(LeaseLost):
        renew_lease(review=left, user=ann, draft={"note": "more"})
    left.refresh_from_db()
    assert (left.status, left.slot, left.draft) == ("lapsed", None, {"note": "more"})


@pytest.mark.django_db
def test_a_review_after_the_lease_is_kept():
    queue, ann, ben = make_queue(pairs=1), annotator(), annotator()
    left = claim(queue, ann)
    expire(left)
    judge(queue, ben, "b")
    said = say(left, "a")
    assert (said.status, said.slot) == ("submitted", 1)
    left.item.refresh_from_db()
    assert left.item.done == 2


@pytest.mark.django_db
def test_who_lost_an_item_takes_it_up_again_when_it_is_free():
    queue, ann, ben = make_queue(pairs=1), annotator(), annotator()
    left = claim(queue, ann)
    expire(left)
    skip_item(review=claim(queue, ben), user=ben, reason="too hard")
    assert claim(queue, ann).pk == left.pk


@pytest.mark.django_db
def test_a_skipped_item_is_for_others_and_says_why():
    queue, ann = make_queue(pairs=1), annotator()
    with pytest.raises(CannotReview, match="Give a reason"):
        skip_item(review=claim(queue, ann), user=ann, reason=" ")
    assert skip_item(review=claim(queue, ann), user=ann, reason="not my language").skip_reason == "not my language"
    assert claim_item(queue=queue, user=ann) is None
    assert claim_item(queue=queue, user=annotator()) is not None


@pytest.mark.django_db
def test_restricted_and_closed_queues_refuse_other_reviewers():
    ann = annotator()
    queue = make_queue(reviewers=[ann])
    claim(queue, ann)
    with pytest.raises(CannotReview, match="for other reviewers"):
        claim_item(queue=queue, user=annotator())
    close_queue(queue=queue, user=make_user(Role.ENGINEER))
    with pytest.raises(CannotReview, match="is closed"):
        claim_item(queue=queue, user=ann)


@pytest.mark.django_db
def test_an_item_with_a_deleted_rollout_is_not_assigned():
    queue = make_queue(pairs=1)
    queue.items.get().entries.first().rollout.delete()
    assert claim_item(queue=queue, user=annotator()) is None


@pytest.mark.django_db
def test_a_reviewer_gets_the_next_item_if_a_rollout_is_deleted():
    queue, ann = make_queue(pairs=3, overlap=2), annotator()
    other = judge(queue, annotator())
    held = claim(queue, ann)
    held.item.entries.first().rollout.delete()
    with pytest.raises(CannotReview, match=r"has been deleted.* is kept"):
        say(held, "b", note="so")
    held.refresh_from_db()
    assert (held.status, held.draft) == ("open", {"choice": "b", "note": "so"})
    assert find_open_review(queue, ann) is None
    assert claim(queue, ann).item_id != held.item_id
    held.refresh_from_db()
    assert (held.status, "has been deleted" in held.skip_reason, held.slot) == ("skipped", True, None)
    found = read_progress(queue)
    done = int(other.item_id != held.item_id)
    assert (found.items, found.lost, found.wanted, found.reviews) == (2, 1, 4, done)


@pytest.mark.django_db
def test_sides_are_balanced_for_each_reviewer_and_recorded():
    queue, people = make_queue(pairs=30, overlap=4), [annotator() for _ in range(4)]
    alike = []
    for person in people:
        reviews = [judge(queue, person) for _ in range(30)]
        swapped = [review.is_swapped for review in reviews]
        for number in range(31):
            assert abs(2 * sum(swapped[:number]) - number) <= MOST_APART
        for review in reviews:
            kept = list(review.item.entries.order_by("place").values_list("rollout_id", flat=True))
            assert review.arrangement == (kept[::-1] if review.is_swapped else kept)
        alike += [one == other for one, other in pairwise(swapped)]
    # The side of one item does not tell that of the next.
    assert 0.2 < sum(alike) / len(alike) < 0.8


@pytest.mark.django_db
@pytest.mark.parametrize("size", [2, 4])
def test_no_order_that_anybody_knows_tells_the_sides_or_the_repeats(size):
    """Neither the queue's seed, nor which rollout was named first when the queue was made, as that of a proposed pair
    which is the better one."""
    firsts, repeats, shown = [], set(), set()
    for _ in range(2):
        queue, ann = make_queue(pairs=24, size=size, seed=11, repeat_share=0.5), annotator()
        items = list(queue.items.order_by("pk"))
        repeats.add(tuple(item.is_repeated for item in items))
        better = [min(item.entries.values_list("rollout_id", flat=True)) for item in items]
        kept = [item.entries.order_by("place").first().rollout_id for item in items]
        assert better != kept
        reviews = [judge(queue, ann, **({} if size == 2 else {"ranks": [1, 2, 3, 4]})) for _ in range(24)]
        first = {review.item_id: min(review.arrangement) == review.arrangement[0] for review in reviews}
        firsts.append(sum(first.values()))
        shown.add(tuple(first.get(item.pk) for item in items))
    assert len(repeats) == len(shown) == 2
    assert max(firsts) < len(first)


@pytest.mark.django_db
def test_a_hidden_repeat_comes_after_ten_others_with_the_sides_swapped():
    queue, ann = make_queue(pairs=24, repeat_share=0.5), annotator()
    reviews = [judge(queue, ann) for _ in range(36)]
    assert claim_item(queue=queue, user=ann) is None
    repeats = [review for review in reviews if review.repeat_of_id]
    assert (len(repeats), queue.items.filter(is_repeated=True).count()) == (12, 12)
    for repeat in repeats:
        first = repeat.repeat_of
        assert (repeat.item_id, repeat.is_swapped, repeat.slot) == (first.item_id, not first.is_swapped, None)
        assert repeat.arrangement == first.arrangement[::-1]
    places = [review.pk for review in reviews]
    gaps = [places.index(each.pk) - places.index(each.repeat_of_id) for each in repeats]
    assert min(gaps) >= 2
    assert gaps[0] > 10


@pytest.mark.django_db
def test_a_hidden_repeat_does_not_follow_at_once_though_its_item_would_have_been_the_last():
    queue, ann = make_queue(pairs=4, repeat_share=0.25), annotator()
    queue.items.update(is_repeated=False)
    queue.items.filter(shuffle=3).update(is_repeated=True)
    reviews = [judge(queue, ann) for _ in range(5)]
    assert [review.repeat_of_id for review in reviews] == [None, None, None, None, reviews[0].pk]


@pytest.mark.django_db
def test_the_order_is_drawn_by_the_seed_or_follows_doubt_or_age():
    def order(**fields):
        queue, ann = make_queue(pairs=6, **fields), annotator()
        first = queue.items.order_by("pk").values_list("pk", flat=True)[0]
        return [judge(queue, ann).item_id - first for _ in range(6)]

    assert order(seed=3) == order(seed=3) != order(seed=4)
    assert order(order=Queue.Order.NEWEST) == [5, 4, 3, 2, 1, 0]
    queue, people = make_queue(pairs=4, overlap=3, order=Queue.Order.DISAGREEMENT), [annotator() for _ in range(3)]
    doubtful = judge(queue, people[0], "a")
    other = claim(queue, people[1])
    while other.item_id != doubtful.item_id:
        say(other, "equal")
        other = claim(queue, people[1])
    say(other, "both_bad")
    assert claim(queue, people[2]).item_id == doubtful.item_id


@pytest.mark.django_db
def test_claiming_costs_the_same_however_many_items_there_are(django_assert_max_num_queries):
    queue, ann = make_queue(pairs=30), annotator()
    with django_assert_max_num_queries(17):
        claim(queue, ann)


@pytest.mark.django_db(transaction=True)
def test_many_at_once_are_never_given_the_same_place(migrated):
    queue = make_queue(pairs=10, overlap=2)
    people = [annotator() for _ in range(20)]

    def work(person):
        try:
            review = claim_item(queue=Queue.objects.get(pk=queue.pk), user=person)
            return review and (review.item_id, review.slot)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(work, people))
    assert len(set(given)) == 20
    assert {slot for _, slot in given} == {0, 1}
    assert Review.objects.filter(status="open").count() == 20


@pytest.mark.django_db(transaction=True)
def test_of_many_who_want_an_item_that_lapsed_one_gets_it(migrated):
    queue = make_queue(pairs=1)
    expire(claim(queue, annotator()))
    people = [annotator() for _ in range(8)]

    def work(person):
        try:
            return claim_item(queue=Queue.objects.get(pk=queue.pk), user=person) is not None
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(work, people)) == [False] * 7 + [True]


@pytest.mark.django_db
def test_items_are_of_one_task_and_completed():
    queue = make_queue(pairs=2)
    one, other = [item.entries.first().rollout_id for item in queue.items.all()]
    with pytest.raises(Exception, match="different tasks"):
        fill_from_sets([[one, other]], kind="pairwise")
