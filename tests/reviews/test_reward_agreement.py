"""Agreement of a collection's rewards with blind reviews, computed by hand."""

import pytest

from apps.gym.metrics.agreement import area_under_curve
from apps.reviews.agreement.reward_agreement import read_reward_agreement
from apps.rollouts.models import Rollout
from tests.reviews.queues import annotator, judge, make_queue
from tests.reviews.test_scan_accuracy import review_all, right, rollouts_of

pytestmark = pytest.mark.django_db


def rewarded(rewards, **fields):
    """A queue whose rollouts have these rewards, and its collection with the solve threshold 0.5."""
    queue = make_queue(pairs=len(rewards), size=1, **fields)
    for pk, reward in zip(rollouts_of(queue), rewards, strict=True):
        Rollout.objects.filter(pk=pk).update(reward=reward)
    collection = Rollout.objects.get(pk=rollouts_of(queue)[0]).collection
    collection.solve_threshold = 0.5
    return queue, collection


@pytest.mark.parametrize(
    ("positives", "negatives", "area"),
    [
        ([0.9, 0.8], [0.1, 0.2], 1.0),
        ([0.1], [0.9], 0.0),
        ([0.5], [0.5], 0.5),
        ([0.9, 0.4, 0.3], [0.1, 0.4], 4.5 / 6),
        ([], [0.1], None),
        ([0.1], [], None),
    ],
)
def test_the_area_under_the_curve_counts_ties_half(positives, negatives, area):
    assert area_under_curve(positives, negatives) == area


def test_agreement_has_the_share_of_equal_decisions_and_the_area():
    queue, collection = rewarded([0.9, 0.4, 0.3, 0.1, 0.6])
    review_all(queue, annotator(), **right(True, True, False, False, False))
    [found] = read_reward_agreement(collection)
    assert (found.rubric, found.criterion, found.label) == (queue.rubric.slug, "right", "Is it right?")
    assert (found.rollouts, found.reviews, found.ties, found.same) == (5, 5, 0, 3)
    assert found.auc == 5 / 6


def test_only_blind_reviews_count_and_ties_are_left_out():
    seeing, collection = rewarded([0.9], shows_expected=True, shows_reward=True, shows_model=True)
    judge(seeing, annotator(), scores={"right": True, "clear": 3})
    assert read_reward_agreement(collection) == []
    queue, collection = rewarded([0.9, 0.2], overlap=2)
    review_all(queue, annotator(), **right(True, False))
    review_all(queue, annotator(), **right(False, False))
    [found] = read_reward_agreement(collection)
    assert (found.rollouts, found.reviews, found.ties, found.same, found.auc) == (1, 4, 1, 1, None)


def test_rollouts_without_a_reward_are_no_evidence(django_assert_max_num_queries):
    queue, collection = rewarded([0.9, 0.2])
    review_all(queue, annotator(), **right(True, False))
    Rollout.objects.filter(pk=rollouts_of(queue)[1]).update(status="failed", reward=None, error_kind="judge_error")
    with django_assert_max_num_queries(3):
        [found] = read_reward_agreement(collection)
    assert (found.rollouts, found.same) == (1, 1)
