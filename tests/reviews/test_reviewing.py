"""What is submitted counts once, can be taken back once, and nothing that was written is lost."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import AuditEntry, Role
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.agreement.decisions import read_verdicts
from apps.reviews.models import PairVerdict, QueueItem, Review
from apps.reviews.queues.item_leases import CannotReview, skip_item
from apps.reviews.reviews.review_answers import Answer, AnswerRefused
from apps.reviews.reviews.submission import AlreadySubmitted, score_rollout, submit_review
from apps.reviews.reviews.undo import find_undoable, undo_review
from tests.factories import make_collection, make_rollout, make_user
from tests.reviews.queues import annotator, claim, judge, make_queue, make_rubric, say

pytestmark = pytest.mark.django_db


def test_the_same_token_counts_once_and_another_is_refused():
    queue, ann = make_queue(), annotator()
    review = claim(queue, ann)
    first, again = say(review, "a_much", token="t1"), say(review, "b", token="t1")
    assert (again.pk, again.choice, PairVerdict.objects.count()) == (first.pk, "a_much", 1)
    with pytest.raises(AlreadySubmitted):
        say(review, "b", token="t2")


def test_a_verdict_is_of_the_rollouts_whatever_their_sides():
    queue, ann = make_queue(pairs=4), annotator()
    for choice in ("a_much", "b", "equal", "both_bad"):
        review = judge(queue, ann, choice)
        verdict = review.verdicts.get()
        winner = {"low": verdict.low_id, "high": verdict.high_id}.get(verdict.outcome, verdict.outcome)
        shown = review.arrangement
        assert (winner, verdict.strength) == {
            "a_much": (shown[0], 2),
            "b": (shown[1], 1),
            "equal": ("equal", 0),
            "both_bad": ("both_bad", 0),
        }[choice]


def test_undone_it_counts_nothing_until_it_is_submitted_again():
    queue, ann = make_queue(pairs=1), annotator()
    say(claim(queue, ann), "a", token="t1", note="so", reasons=["safety"], confidence=3)
    review = undo_review(queue=queue, user=ann)
    assert review.draft == {"choice": "a", "reasons": ["safety"], "confidence": 3, "note": "so"}
    review.item.refresh_from_db()
    assert (review.status, review.item.done, PairVerdict.objects.count()) == ("open", 0, 0)
    # The first submission comes once more, late.
    assert say(review, "a", token="t1").status == "open"
    assert say(review, "b", token="t2").choice == "b"
    actions = AuditEntry.objects.filter(noun="review").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["review.submit", "review.undo", "review.submit"]


def test_only_ones_own_last_review_is_undone():
    queue, ann = make_queue(), annotator()
    with pytest.raises(CannotReview, match="Nothing to undo: you have not submitted a review here"):
        undo_review(queue=queue, user=ann)
    judge(queue, annotator())
    with pytest.raises(CannotReview, match="Nothing to undo: you have not submitted a review here"):
        undo_review(queue=queue, user=ann)
    first, second = judge(queue, ann), judge(queue, ann)
    assert undo_review(queue=queue, user=ann).pk == second.pk
    assert claim(queue, ann).pk == second.pk
    assert Review.objects.get(pk=first.pk).status == "submitted"


def test_asked_for_twice_by_name_one_review_is_taken_back_and_never_another():
    queue, ann = make_queue(), annotator()
    first, second = judge(queue, ann), judge(queue, ann)
    taken = [undo_review(queue=queue, user=ann, wanted=second.pk) for _ in range(2)]
    assert [(each.pk, each.status) for each in taken] == [(second.pk, "open")] * 2
    assert Review.objects.get(pk=first.pk).status == "submitted"
    say(second, "b")
    with pytest.raises(CannotReview, match="is not your last review in this queue"):
        undo_review(queue=queue, user=ann, wanted=first.pk)
    with pytest.raises(CannotReview, match="is not your last review in this queue"):
        undo_review(queue=queue, user=ann, wanted=judge(queue, annotator()).pk)


def test_undo_takes_back_the_last_skip():
    queue, ann = make_queue(pairs=2), annotator()
    first, skipped = judge(queue, ann), claim(queue, ann)
    for _ in range(2):
        assert skip_item(review=skipped, user=ann, reason="oops").skipped_at is not None
    assert find_undoable(queue, ann).pk == skipped.pk
    undone = undo_review(queue=queue, user=ann)
    assert (undone.pk, undone.status, undone.skip_reason, undone.ended_at) == (skipped.pk, "open", "", None)
    assert Review.objects.get(pk=first.pk).status == "submitted"
    assert claim(queue, ann).pk == skipped.pk
    assert AuditEntry.objects.get(action="review.undo").detail == {"queue": queue.pk, "skipped": "oops"}


def test_an_undone_skip_can_be_submitted_even_if_reassigned():
    queue, ann = make_queue(pairs=1), annotator()
    skipped = skip_item(review=claim(queue, ann), user=ann, reason="oops")
    other = claim(queue, annotator())
    undone = undo_review(queue=queue, user=ann)
    assert (undone.status, undone.slot, other.item_id) == ("lapsed", None, skipped.item_id)
    assert say(undone, "b").status == "submitted"


def test_undo_takes_the_offered_review():
    def undoable(queue, person):
        return getattr(find_undoable(queue, person), "pk", None)

    trains, queue, ann = make_queue(reveals=True), make_queue(pairs=2), annotator()
    judge(trains, ann)
    assert (undoable(trains, ann), undoable(queue, ann)) == (None, None)
    review = judge(queue, ann)
    assert undoable(queue, ann) == review.pk
    Review.objects.filter(pk=review.pk).update(submitted_at=timezone.now() - timedelta(minutes=11))
    assert undoable(queue, ann) is None
    # Ended for them, such as when a rollout was deleted: not by them, and not theirs to take back.
    Review.objects.filter(pk=claim(queue, ann).pk).update(status="skipped", slot=None, skip_reason="Gone.")
    with pytest.raises(CannotReview, match="Your last review can no longer be undone"):
        undo_review(queue=queue, user=ann)


def test_a_hidden_repeat_does_not_prevent_undo():
    ann, queue = annotator(), make_queue(pairs=1)
    QueueItem.objects.update(is_repeated=True)
    first = judge(queue, ann, "a")
    again = claim(queue, ann)
    assert again.repeat_of_id == first.pk
    undone = undo_review(queue=queue, user=ann)
    assert (undone.pk, claim(queue, ann).pk) == (first.pk, first.pk)
    say(undone, "b")
    assert claim(queue, ann).pk == again.pk


def test_a_reviewer_cannot_submit_for_another():
    review = claim(make_queue(), annotator())
    with pytest.raises(CannotReview, match="This review belongs to another reviewer"):
        submit_review(review=review, user=annotator(), token="t", answer=Answer(choice="a"))


@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        ({"choice": ""}, {"choice"}),
        ({"choice": "c"}, {"choice"}),
        ({"choice": "a", "reasons": ["beauty"]}, {"reasons"}),
        ({"choice": "a", "confidence": 4, "note": "x" * 10_001}, {"confidence", "note"}),
        ({"choice": "a", "scores": {"right": True}}, {"scores"}),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused_by_field(answer, fields):
    review = claim(make_queue(), annotator())
    with pytest.raises(AnswerRefused) as refused:
        submit_review(review=review, user=review.reviewer, token="t", answer=Answer(**answer))
    assert set(refused.value.wrong) == fields
    review.refresh_from_db()
    assert review.status == "open"


def test_scores_of_a_rubric_are_checked_by_their_kinds():
    queue, ann = make_queue(pairs=2, size=1), annotator()
    with pytest.raises(AnswerRefused) as refused:
        say(claim(queue, ann), scores={"clear": 9, "style": 1})
    assert set(refused.value.wrong) == {"scores.right", "scores.clear", "scores.style"}
    said = say(claim(queue, ann), scores={"right": False, "clear": 2.5, "why": ""})
    assert (said.scores, said.rollout_id) == ({"right": False, "clear": 2.5}, said.arrangement[0])


def test_a_ranking_is_a_verdict_of_every_two_with_ties():
    queue, ann = make_queue(pairs=1, size=4), annotator()
    review = say(claim(queue, ann), ranks=[1, 3, 3, 4])
    assert review.ranks == [1, 2, 2, 3]
    one, two, three, four = review.arrangement
    found = read_verdicts(rollout_ids=review.arrangement)
    assert len(found) == 6
    assert (found[min(one, two), max(one, two)].winner, found[min(one, two), max(one, two)].strength) == (one, 1)
    assert (found[min(one, four), max(one, four)].winner, found[min(one, four), max(one, four)].strength) == (one, 2)
    assert found[min(two, three), max(two, three)].outcome == "equal"


@pytest.mark.parametrize("ranks", [[1, 2], [0, 1, 2], [2, 2, 3], [1, 2, "3"], [1, 2, 4]])
def test_ranks_that_make_no_order_are_refused(ranks):
    review = claim(make_queue(pairs=1, size=3), annotator())
    with pytest.raises(AnswerRefused) as refused:
        say(review, ranks=ranks)
    assert set(refused.value.wrong) == {"ranks"}


def test_an_adjudication_decides_and_keeps_the_reviews():
    queue = make_queue(pairs=1, overlap=2)
    first = judge(queue, annotator(), "a")
    judge(queue, annotator(), "both_bad")
    low, high = sorted(first.arrangement)
    assert read_verdicts(rollout_ids=[low, high])[low, high].how == "split"
    lead, item = make_user(Role.ENGINEER), queue.items.get()
    shown = list(item.entries.order_by("place").values_list("rollout_id", flat=True))
    adjudicate_item(item=item, user=lead, answer=Answer(choice="b_much", note="It never ran the tests."))
    adjudicate_item(item=item, user=lead, answer=Answer(choice="a", note="It did."))
    standing = read_verdicts(rollout_ids=[low, high])[low, high]
    assert (standing.winner, standing.strength, standing.how, standing.reviewers) == (shown[0], 1, "adjudicated", 2)
    assert sorted(Review.objects.values_list("status", "is_adjudication")) == [
        ("replaced", True),
        ("submitted", False),
        ("submitted", False),
        ("submitted", True),
    ]
    with pytest.raises(CannotReview, match="adjudicated"):
        undo_review(queue=queue, user=first.reviewer)


def test_an_unreviewed_item_cannot_be_adjudicated():
    item = make_queue().items.first()
    with pytest.raises(CannotReview, match="This item has no reviews to adjudicate"):
        adjudicate_item(item=item, user=make_user(Role.ENGINEER), answer=Answer(choice="a"))


def test_outside_of_queues_the_last_scores_of_a_person_count():
    rollout, rubric, ann = make_rollout(make_collection()), make_rubric(), annotator()
    given = {"rollout": rollout, "rubric": rubric, "reviewer": ann}
    first = score_rollout(**given, scores={"right": True, "clear": 4}, token="t1")
    assert score_rollout(**given, scores={"right": False, "clear": 1}, token="t1").pk == first.pk
    last = score_rollout(**given, scores={"right": False, "clear": 1}, token="t2")
    score_rollout(**given, seq=2, scores={"right": True, "clear": 5})
    standing = rollout.reviews.submitted().filter(seq=None)
    assert [each.pk for each in standing] == [last.pk]
    assert rollout.reviews.submitted().get(seq=2).scores == {"right": True, "clear": 5}
