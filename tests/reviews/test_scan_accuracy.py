"""Precision and recall of a scan against blind reviews, computed by hand."""

import pytest

from apps.accounts.models import Role
from apps.gym.metrics.clustered_intervals import Z_95, wilson
from apps.policies.models import PolicyModel
from apps.reviews.agreement.scan_accuracy import read_accuracy
from apps.rollouts.models import Scan, ScanAnswer
from tests.factories import make_policy_model, make_user
from tests.reviews.queues import annotator, claim, judge, make_queue, make_rubric, say

pytestmark = pytest.mark.django_db
KINDS = ["Gave up", "Guessed", "none"]


def scan_of(answers, **fields):
    """A scan with these answers by rollout; None: it failed."""
    judge_model = PolicyModel.objects.first() or make_policy_model()
    given = {"name": "S", "question": "?", "judge_model": judge_model, "budget": 1.0, "max_characters": 1_000}
    scan = Scan.objects.create(**given | fields)
    for rollout, answer in answers.items():
        state = ScanAnswer.State.ANSWERED if answer else ScanAnswer.State.FAILED
        error = "" if answer else "no verdict"
        ScanAnswer.objects.create(scan=scan, rollout_id=rollout, state=state, answer=answer or "", error=error)
    return scan


def review_all(queue, reviewer, **scores):
    """Review every item, with the scores of `scores[str(number of the rollout in the queue)]`."""
    rollouts = {pk: place for place, pk in enumerate(rollouts_of(queue))}
    for _ in rollouts:
        review = claim(queue, reviewer)
        say(review, scores=scores[f"r{rollouts[review.rollout_id]}"])


def rollouts_of(queue):
    return list(queue.items.order_by("pk").values_list("entries__rollout", flat=True))


def right(*given):
    return {f"r{place}": {"right": one, "clear": 3} for place, one in enumerate(given)}


def test_precision_and_recall_have_wilson_intervals():
    queue = make_queue(pairs=5, size=1)
    review_all(queue, annotator(), **right(True, True, True, False, False))
    answers = dict(zip(rollouts_of(queue), ["yes", "yes", "no", "yes", "no"], strict=True))
    (criterion,) = read_accuracy(scan_of(answers)).criteria
    assert (criterion.criterion, criterion.label, criterion.rubric) == ("right", "Is it right?", queue.rubric.slug)
    assert (criterion.rollouts, criterion.reviews, criterion.ties) == (5, 5, 0)
    yes, no = criterion.answers
    assert (yes.answer, yes.found, yes.present, yes.right) == ("yes", 3, 3, 2)
    assert (yes.precision, yes.recall) == (2 / 3, 2 / 3)
    assert yes.precision_interval == yes.recall_interval == wilson(2 / 3, 3, Z_95)
    assert yes.precision_interval == pytest.approx((0.2077, 0.9385), abs=1e-4)
    assert (no.found, no.present, no.right, no.precision) == (2, 2, 1, 0.5)


def test_only_blind_first_reviews_of_people_who_see_no_results_count():
    answers = {}
    seeing = make_queue(pairs=1, size=1, shows_expected=True, shows_reward=True, shows_model=True)
    judge(seeing, annotator(), scores={"right": True, "clear": 3})
    engineers = make_queue(pairs=1, size=1)
    judge(engineers, make_user(Role.ENGINEER), scores={"right": True, "clear": 3})
    for queue in (seeing, engineers):
        answers |= dict.fromkeys(rollouts_of(queue), "yes")
    scan = scan_of(answers)
    assert read_accuracy(scan).criteria == []
    blind = make_queue(pairs=1, size=1)
    judge(blind, annotator(), scores={"right": True, "clear": 3})
    ScanAnswer.objects.create(
        scan=scan, rollout_id=rollouts_of(blind)[0], state=ScanAnswer.State.ANSWERED, answer="yes"
    )
    (criterion,) = read_accuracy(scan).criteria
    assert (criterion.rollouts, criterion.answers[0].precision) == (1, 1.0)


def test_most_reviewers_decide_and_ties_are_left_out():
    queue = make_queue(pairs=2, size=1, overlap=3)
    review_all(queue, annotator(), **right(True, True))
    review_all(queue, annotator(), **right(True, False))
    answers = dict.fromkeys(rollouts_of(queue), "no")
    (criterion,) = read_accuracy(scan_of(answers)).criteria
    assert (criterion.rollouts, criterion.ties, criterion.reviews) == (1, 1, 4)
    review_all(queue, annotator(), **right(False, False))
    (criterion,) = read_accuracy(scan_of(answers)).criteria
    assert (criterion.rollouts, criterion.ties) == (2, 0)
    assert [(one.answer, one.present) for one in criterion.answers] == [("yes", 1), ("no", 1)]


def test_labels_are_compared_with_categories_and_failed_rollouts_left_out():
    criteria = [
        {"key": "end", "label": "How did it end?", "kind": "category", "choices": ["gave up", "guessed", "solved"]},
        {"key": "tone", "label": "Tone", "kind": "category", "choices": ["dry", "warm"], "required": False},
    ]
    queue = make_queue(pairs=4, size=1, rubric=make_rubric(criteria=criteria))
    ends = ["gave up", "guessed", "solved", "gave up"]
    review_all(queue, annotator(), **{f"r{place}": {"end": end} for place, end in enumerate(ends)})
    answers = dict(zip(rollouts_of(queue), ["Gave up", "Gave up", "none", None], strict=True))
    (criterion,) = read_accuracy(scan_of(answers, kind="label", labels=KINDS)).criteria
    assert (criterion.criterion, criterion.rollouts) == ("end", 3)
    gave_up, guessed, none = criterion.answers
    assert (gave_up.precision, gave_up.recall) == (0.5, 1.0)
    assert (guessed.precision, guessed.precision_interval, guessed.recall) == (None, None, 0.0)
    assert (none.found, none.right, none.recall) == (1, 0, None)


def test_numbers_have_no_precision():
    queue = make_queue(pairs=1, size=1)
    judge(queue, annotator(), scores={"right": True, "clear": 3})
    assert read_accuracy(scan_of(dict.fromkeys(rollouts_of(queue), "1"), kind="number")).criteria == []


def test_the_number_of_queries_does_not_depend_on_the_number_of_reviews(django_assert_num_queries):
    queue = make_queue(pairs=4, size=1)
    review_all(queue, annotator(), **right(True, True, False, False))
    scan = scan_of(dict.fromkeys(rollouts_of(queue), "yes"))
    with django_assert_num_queries(3):
        read_accuracy(scan)
