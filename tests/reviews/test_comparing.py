"""A verdict on rollouts that stand side by side is one voice among those of the queues."""

import pytest

from apps.accounts.models import AuditEntry, Role
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.agreement.decisions import read_verdicts
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_leases import CannotReview, skip_item
from apps.reviews.reviews.own_verdicts import read_own_verdict, save_own_verdict
from apps.reviews.reviews.review_answers import Answer
from tests.factories import make_user
from tests.reviews.queues import annotator, claim, make_queue, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def lead():
    return make_user(Role.ENGINEER)


def judged_blindly(*people):
    """A pair of which each of these said that its first rollout is better: the two, in the order of the item."""
    queue = make_queue(pairs=1, overlap=len(people))
    pair = list(queue.items.get().entries.order_by("place").values_list("rollout_id", flat=True))
    for person in people:
        review = claim(queue, person)
        say(review, "a" if review.arrangement == pair else "b")
    return pair


def test_said_again_it_is_replaced_and_settles_nothing_that_others_judged_blindly(lead):
    first, second = judged_blindly(annotator(), annotator())
    for number, choice in enumerate(("a", "a_much", "equal", "a")):
        save_own_verdict(rollout_ids=[second, first], user=lead, answer=Answer(choice=choice), token=f"t{number}")
        (verdict,) = read_verdicts(rollout_ids=[first, second]).values()
        assert (verdict.winner, verdict.how, verdict.reviewers, verdict.agreeing) == (first, "majority", 3, 2)
        told = read_own_verdict([first, second], lead)
        assert told is not None
        assert told.choice == {"a": "b", "a_much": "b_much", "equal": "equal"}[choice]
    assert Review.objects.filter(reviewer=lead, is_adjudication=False).count() == 1
    assert not Review.objects.filter(is_adjudication=True).exists()
    before = [entry.before["choice"] for entry in AuditEntry.objects.filter(action="review.undo")]
    assert len(before) == 3


def test_the_same_token_twice_says_it_once(lead):
    first, second = judged_blindly(annotator())
    said = [
        save_own_verdict(rollout_ids=[first, second], user=lead, answer=Answer(choice=choice), token="same").pk
        for choice in ("a", "b")
    ]
    assert said[0] == said[1]
    assert AuditEntry.objects.filter(action="review.undo").count() == 0


def test_a_skipped_item_can_be_answered_and_an_adjudicated_one_stays(lead):
    first, second = judged_blindly(annotator())
    save_own_verdict(rollout_ids=[first, second], user=lead, answer=Answer(choice="a"), token="one")
    queue = Queue.objects.get(created_by=lead)
    adjudicate_item(item=queue.items.get(), user=lead, answer=Answer(choice="equal"))
    with pytest.raises(CannotReview, match="adjudicated"):
        save_own_verdict(rollout_ids=[first, second], user=lead, answer=Answer(choice="b"), token="two")
    other = make_user(Role.ENGINEER)
    save_own_verdict(rollout_ids=[first, second], user=other, answer=Answer(choice="a"), token="three")
    own = Review.objects.get(reviewer=other)
    Review.objects.filter(pk=own.pk).update(status="open", leased_until=own.started_at)
    own.refresh_from_db()
    skip_item(review=own, user=other, reason="Not now.")
    save_own_verdict(rollout_ids=[first, second], user=other, answer=Answer(choice="b"), token="four")
    own.refresh_from_db()
    assert (own.status, own.token) == ("submitted", "four")
