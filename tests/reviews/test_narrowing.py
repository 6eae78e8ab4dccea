"""Which items and reviews a filter finds; the same for pages, the API, and files."""

import csv
import io
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.api.reviews.queue_viewsets import QueueItemFilter
from apps.api.reviews.review_viewsets import ReviewFilter
from apps.dashboard.forms.review_filters import ItemFilterForm, ReviewFilterForm
from apps.gym.pairs.verdicts import CHOICES
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.models import Queue, QueueItem, Review
from apps.reviews.queues.item_leases import skip_item
from apps.reviews.queues.item_states import State, find_states, occupies_slot, with_held
from apps.reviews.queues.queue_filters import ITEM_FILTERS, REVIEW_FILTERS, filter_items, filter_reviews
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.review_files import FORMATS, tag_reviews
from apps.reviews.reviews.submission import score_rollout
from apps.reviews.reviews.undo import undo_review
from apps.rollouts.models import Rollout
from apps.tasks.models import Task
from tests.factories import make_user
from tests.reviews.queues import annotator, claim, judge, make_queue, make_rubric, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def people():
    return {name: annotator(username=name) for name in ("ann", "ben", "cy")}


@pytest.fixture
def led(people):
    """Seven items in the order `newest`, the last one first: of two people each."""
    queue = make_queue(pairs=7, overlap=2, order="newest")
    items = list(queue.items.order_by("pk"))
    for item in items:
        Task.objects.filter(pk=item.task_id).update(prompt_excerpt=f"What is {item.task.index} + 2?")
    ann, ben, cy = people.values()
    for choice in ("a_much", "a", "equal", "b"):
        judge(queue, ann, choice, confidence=1 if choice == "a" else 3)
    skip_item(review=claim(queue, ann), user=ann, reason="I know this task.")
    claim(queue, ann)
    for number, mine in enumerate(Review.objects.filter(reviewer=ann, status="submitted").order_by("pk")):
        held = claim(queue, ben)
        assert held.item_id == mine.item_id
        if number == 0:
            say(held, _same(mine, held))
        elif number == 1:
            say(held, "both_bad")
        elif number == 2:
            say(held, "b_much")
        else:
            skip_item(review=held, user=ben, reason="The page is broken.")
    adjudicate_item(item=items[4], user=make_user(username="erika"), answer=Answer(choice="a"))
    Rollout.objects.filter(queue_entries__item=items[0])[0].delete()
    claim(queue, cy)
    return queue, items


def _same(one: Review, other: Review) -> str:
    """The choice that says of the other's sides what this one said."""
    turned = {"a_much": "b_much", "a": "b", "b": "a", "b_much": "a_much"}
    return one.choice if one.is_swapped == other.is_swapped else turned.get(one.choice, one.choice)


def found(queue: Queue, items: list[QueueItem], **wanted) -> list[int]:
    """Which of the items, by their places."""
    places = {item.pk: place for place, item in enumerate(items)}
    return sorted(places[each.pk] for each in filter_items(QueueItem.objects.filter(queue=queue), wanted))


def test_an_item_has_exactly_one_state(led):
    queue, items = led
    states = {state.value: found(queue, items, state=state) for state in State}
    assert states == {
        # ann left one and has one; ben left one, which cy has.
        "waiting": [1, 2],
        "claimed": [1, 3],
        "done": [5, 6],
        "disputed": [5],
        "settled": [4],
        "lost": [0],
    }


def test_the_state_of_an_item_equals_its_filter(led):
    queue, _ = led
    for item in QueueItem.objects.filter(queue=queue).prefetch_related("entries"):
        held = sum(occupies_slot(each) for each in with_held(item.reviews.all()))
        told = find_states(item, overlap=queue.overlap, held=held, present=len(item.entries.all()))
        assert told == [each for each in State if filter_items(QueueItem.objects.filter(pk=item.pk), {"state": each})]


def test_a_lease_that_ran_out_holds_nothing(led):
    queue, items = led
    Review.objects.filter(status="open").update(leased_until=timezone.now() - timedelta(minutes=1))
    assert (found(queue, items, state="claimed"), found(queue, items, state="waiting")) == ([], [1, 2, 3])
    assert [each.is_held for each in with_held(Review.objects.filter(status="open"))] == [False, False]


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ({"reviewer": "ben"}, [3, 4, 5, 6]),
        ({"reviewer": "nobody"}, []),
        ({"skipped": True}, [2, 3]),
        ({"skipped": True, "reviewer": "ben"}, [3]),
        ({"skipped": False, "reviewer": "ann"}, [1, 3, 4, 5, 6]),
        ({"skipped": False}, [0, 1, 4, 5, 6]),
        ({"verdict": "equal"}, [4]),
        ({"verdict": "equal", "reviewer": "ben"}, []),
        ({"verdict": "both_bad", "reviewer": "ben"}, [5]),
        ({"task_number": 3}, [2]),
        ({"text": "what is 4 +"}, [4]),
        ({"text": "what is", "state": "done"}, [5, 6]),
        ({"disputed": True}, [5]),
        ({"is_repeated": True}, []),
        ({"state": "", "reviewer": None, "text": ""}, [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_items_are_found_by_who_said_what_and_by_their_task(led, wanted, places):
    assert found(*led, **wanted) == places


def test_a_verdict_is_found_whichever_side_was_shown_first(led):
    queue, items = led
    judged = {item.pk: item for item in items}
    for verdict in CHOICES:
        expected = set()
        for review in Review.objects.filter(queue=queue, status="submitted"):
            first = judged[review.item_id].entries.get(place=0).rollout_id
            turned = {"a_much": "b_much", "a": "b", "b": "a", "b_much": "a_much"}
            said = review.choice if review.arrangement[0] == first else turned.get(review.choice, review.choice)
            expected |= {review.pk} if said == verdict else set()
        hits = filter_reviews(Review.objects.all(), {"verdict": verdict}, reads_all=True)
        assert {each.pk for each in hits} == expected


def test_reviews_are_found_by_what_they_are_about_and_what_they_say(led, people):
    queue, items = led
    alone = score_rollout(
        rollout=Rollout.objects.filter(queue_entries__item=items[5])[0],
        reviewer=people["cy"],
        rubric=make_rubric(),
        scores={"right": True, "clear": 3, "why": "so"},
    )
    other = judge(make_queue(pairs=1), people["ann"], "a", confidence=1)
    collection = items[5].entries.all()[0].rollout.collection_id

    def count(**wanted) -> int:
        return filter_reviews(Review.objects.all(), wanted, reads_all=True).count()

    of_queue = Review.objects.filter(queue=queue).count()
    assert of_queue == 12
    assert count(queue=queue.pk) == of_queue
    # But for the one whose item lost a rollout, of which nobody said anything.
    assert count(collection=collection) == of_queue + 1
    assert count(collection=collection, kind="score") == 1
    assert count(kind="pairwise") == of_queue + 1
    assert count(item=items[5].pk) == 2
    assert count(rollout=alone.rollout_id) == 3
    assert (count(task=items[5].task_id), count(task_number=6)) == (3, 3)
    assert count(text="what is 5 +") == 3
    assert (count(status="skipped"), count(status="open"), count(status="submitted")) == (2, 2, 10)
    assert (count(confidence=1), count(confidence=1, queue=queue.pk)) == (2, 1)
    assert (count(is_adjudication=True), count(is_adjudication=False)) == (1, of_queue + 1)
    assert (count(is_repeat=True), count(is_repeat=False)) == (0, of_queue + 2)
    assert count(choice="a", reviewer="ann", queue=other.queue_id) == 1


def test_an_annotator_cannot_filter_by_hidden_values(led, people):
    ann = Review.objects.filter(reviewer=people["ann"], queue__isnull=False)
    hiding = {
        "collection": ann[0].item.entries.all()[0].rollout.collection_id,
        "rollout": ann[0].arrangement[0],
        "task": ann[0].item.task_id,
        "task_number": ann[0].item.task.number,
        "text": "what is",
        "verdict": "equal",
        "is_repeat": False,
    }
    for name, value in hiding.items():
        told = [filter_reviews(ann, {name: value}, reads_all=reads_all).exists() for reads_all in (True, False)]
        assert (name, told) == (name, [True, False])
    assert filter_reviews(ann, {"status": "skipped", "kind": "pairwise"}, reads_all=False).count() == 1


def test_page_and_api_ask_by_the_same_names():
    assert set(ReviewFilter.base_filters) == set(ReviewFilterForm.base_fields) == REVIEW_FILTERS
    assert set(QueueItemFilter.base_filters) == ITEM_FILTERS
    # The page has a queue in its address, and tells a dispute as a state.
    assert set(ItemFilterForm.base_fields) == ITEM_FILTERS - {"queue", "disputed", "task"}


def written(format="ndjson", **wanted):
    _, write = FORMATS[format]
    return b"".join(write(filter_reviews(Review.objects.all(), wanted, reads_all=True))).decode()


def test_files_hold_the_reviews_that_pass(led, people):
    queue, items = led
    score_rollout(
        rollout=Rollout.objects.filter(queue_entries__item=items[5])[0],
        reviewer=people["cy"],
        rubric=make_rubric(slug="clarity"),
        scores={"right": True, "clear": 3, "why": "so"},
    )
    rows = [json.loads(line) for line in written(task_number=6, status="submitted").splitlines()]
    assert [(row["reviewer"], row["kind"], row["rubric"]) for row in rows] == [
        ("ann", "pairwise", None),
        ("ben", "pairwise", None),
        ("cy", "score", "clarity"),
    ]
    assert rows[2]["rollouts"] == [Rollout.objects.filter(queue_entries__item=items[5])[0].pk]
    skipped = [json.loads(line) for line in written(status="skipped").splitlines()]
    assert [(row["reviewer"], row["skip_reason"]) for row in skipped] == [
        ("ann", "I know this task."),
        ("ben", "The page is broken."),
    ]
    lines = csv.DictReader(io.StringIO(written("csv", queue=queue.pk, reviewer="ben")))
    assert [line["status"] for line in lines] == [
        "submitted",
        "submitted",
        "submitted",
        "skipped",
    ]


def test_the_etag_of_a_file_changes_with_its_content(led):
    every = Review.objects.all()
    tags = [tag_reviews(every, format="csv")[0], tag_reviews(every, format="csv")[0]]
    tags.append(tag_reviews(every.filter(status="open"), format="csv")[0])
    Review.objects.filter(status="open").update(status="lapsed", slot=None)
    tags.append(tag_reviews(every, format="csv")[0])
    skipped = Review.objects.get(status="skipped", reviewer__username="ben")
    undo_review(queue=skipped.queue, user=skipped.reviewer)
    skip_item(review=skipped, user=skipped.reviewer, reason="Another reason.")
    tags.append(tag_reviews(every, format="csv")[0])
    assert [tags.index(tag) for tag in tags] == [0, 0, 2, 3, 4]
