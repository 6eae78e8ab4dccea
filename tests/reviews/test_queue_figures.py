"""Statistics of a queue: progress, pace, and agreement between reviewers, with repeats and with the reward."""

from datetime import timedelta

import pytest
from django.db import transaction

from apps.environments.models import Environment
from apps.reviews.agreement.queue_agreement import read_agreed, read_agreement, read_disputed, read_progress
from apps.reviews.agreement.reviewer_figures import read_reviewers
from apps.reviews.agreement.verifier_agreement import read_against_lengths, read_against_rewards
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_leases import claim_item, skip_item
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.reviews.reviews.undo import undo_review
from apps.rollouts.models import Rollout
from tests.reviews.queues import annotator, claim, judge, make_queue, say

pytestmark = pytest.mark.django_db


def prefer(queue, person, *, best, strength=2):
    """Judge one item: for the rollout of the higher reward, or against it."""
    review = claim(queue, person)
    rewards = [Rollout.objects.get(pk=one).reward for one in review.arrangement]
    side = "a" if (rewards[0] > rewards[1]) == best else "b"
    return say(review, f"{side}_much" if strength == 2 else side)


def test_progress_counts_items_and_the_reviews_that_are_wanted():
    queue, ann, ben = make_queue(pairs=3, overlap=2), annotator(), annotator()
    prefer(queue, ann, best=True)
    first = claim(queue, ben)
    prefer(queue, ann, best=True)
    prefer(queue, ann, best=True)
    say(first, "both_bad")
    found = read_progress(queue)
    assert (found.items, found.finished, found.begun, found.reviews, found.wanted) == (3, 1, 3, 4, 6)
    assert (found.disputed, found.adjudicated, round(found.share, 2)) == (1, 0, 0.33)
    assert [item.pk for item in read_disputed(queue)] == [first.item_id]


def test_agreement_with_each_other_and_with_the_reward():
    queue, ann, ben = make_queue(pairs=10, overlap=2), annotator(username="ann"), annotator(username="ben")
    for _ in range(10):
        prefer(queue, ann, best=True)
    for number in range(10):
        prefer(queue, ben, best=number < 7)
    (verdict,) = read_agreement(queue)
    assert (verdict.name, verdict.units, verdict.percent) == ("verdict", 10, 0.7)
    assert read_agreed([queue, make_queue(pairs=1)]) == {queue.pk: pytest.approx(0.7)}
    assert [(one, other, shared) for one, other, _, shared in verdict.kappas] == [("ann", "ben", 10)]
    assert verdict.differences == [("one side better", "the other side better", 3)]
    (reward,) = read_against_rewards(queue)
    assert (reward.name, reward.same, reward.compared, reward.share) == ("rewards of verifiers", 17, 20, 0.85)
    Rollout.objects.update(judge_calls=1)
    assert [each.name for each in read_against_rewards(queue)] == ["rewards of judges"]
    # A verifier that asks its judge about some attempts only: what a judge gave is no agreement with verifiers.
    Environment.objects.update(builtin="simulated_user")
    assert [each.name for each in read_against_rewards(queue)] == ["rewards of verifiers"]
    Environment.objects.update(builtin="calculator")
    Rollout.objects.filter(reward=0.0).update(judge_calls=0)
    (mixed,) = read_against_rewards(queue)
    assert (mixed.name, mixed.same, mixed.compared) == ("rewards of verifier and judge", 17, 20)


def test_what_two_say_who_differ_is_counted_whichever_side_it_was():
    queue, ann, ben = make_queue(pairs=4, overlap=2), annotator(), annotator()
    for choices in (("a", "equal"), ("b", "equal"), ("equal", "both_bad"), ("equal", "equal")):
        first, second = claim(queue, ann), claim(queue, ben)
        assert first.item_id == second.item_id
        say(first, choices[0])
        say(second, choices[1])
    (verdict,) = read_agreement(queue)
    assert sorted(verdict.differences) == [("equal", "both bad", 1), ("one side better", "equal", 2)]


def test_how_often_the_longer_attempt_is_preferred_says_whether_length_is_judged():
    queue, ann = make_queue(pairs=4), annotator()
    assert read_against_lengths(queue) == []
    for rollout in Rollout.objects.all():
        rollout.output_tokens = 300 if rollout.reward == 1.0 else 100
        rollout.save()
    unknown = claim(queue, ann)
    Rollout.objects.filter(pk=unknown.arrangement[0]).update(output_tokens=0)
    say(unknown, "a")
    for best in (True, True, False):
        prefer(queue, ann, best=best)
    (length,) = read_against_lengths(queue)
    assert (length.name, length.same, length.compared) == ("preference for the longer rollout", 2, 3)


def test_a_repeat_answered_for_the_same_rollout_on_the_other_side_is_consistent():
    queue, ann, ben = make_queue(pairs=4, repeat_share=0.5, overlap=2), annotator(), annotator()
    for _ in range(6):
        prefer(queue, ann, best=True)
        judge(queue, ben, "a")
    by_name = {each.username: each for each in read_reviewers(queue)}
    steady, sided = by_name[ann.username], by_name[ben.username]
    assert (steady.repeated, steady.consistent, steady.submitted) == (2, 2, 6)
    # Who always says A contradicts themselves when the sides are swapped.
    assert (sided.repeated, sided.consistent, sided.first_side) == (2, 0, 1.0)


def test_a_break_between_items_does_not_lower_the_reviews_per_hour():
    queue, ann = make_queue(pairs=2), annotator()
    before, after = judge(queue, ann), judge(queue, ann)
    Review.objects.filter(pk=before.pk).update(
        seconds=20,
        started_at=before.started_at - timedelta(days=2),
        submitted_at=before.submitted_at - timedelta(days=2),
    )
    Review.objects.filter(pk=after.pk).update(seconds=40)
    assert read_reviewers(queue)[0].per_hour == 120


def test_a_repeat_of_an_undone_review_counts_nowhere():
    queue, ann = make_queue(pairs=2, repeat_share=0.5), annotator()
    first = judge(queue, ann)
    other = claim(queue, ann)
    skip_item(review=other, user=ann, reason="I know this task.")
    # Before the first, so that undo takes the first back.
    Review.objects.filter(pk=other.pk).update(skipped_at=first.submitted_at - timedelta(seconds=1))
    repeat = claim(queue, ann)
    assert repeat.repeat_of == first
    assert undo_review(queue=queue, user=ann) == first
    # Said while the first answer is taken back, such as in another tab: nothing to compare it with, yet.
    with transaction.atomic():
        say(repeat)
        assert [(each.submitted, each.repeated) for each in read_reviewers(queue)] == [(1, 0)]
        transaction.set_rollback(True)
    skip_item(review=first, user=ann, reason="Nor this.")
    repeat.refresh_from_db()
    assert (repeat.status, claim_item(queue=queue, user=ann)) == ("skipped", None)
    (figures,) = read_reviewers(queue)
    assert (figures.submitted, figures.skipped, figures.repeated, figures.consistent) == (0, 2, 0, 0)
    # Nor when the skip is taken back: the repeat stays ended, and nobody skipped that.
    assert undo_review(queue=queue, user=ann) == first
    assert read_reviewers(queue)[0].skipped == 1


def test_scores_are_compared_by_criterion_and_with_the_reward():
    queue, people = make_queue(pairs=4, size=1, overlap=2), [annotator(), annotator()]
    Rollout.objects.filter(queue_entries__item=queue.items.order_by("pk").first()).update(reward=0.0)
    for person in people:
        for _ in range(4):
            review = claim(queue, person)
            reward = Rollout.objects.get(pk=review.rollout_id).reward
            say(review, scores={"right": reward == 1.0, "clear": 1 + 2 * reward})
    right, clear = read_agreement(queue)
    assert (right.name, right.nominal, right.scale, right.percent) == ("Is it right?", 1.0, None, 1.0)
    assert (clear.nominal, clear.scale) == (1.0, 1.0)
    assert right.differences == clear.differences == []
    solved, together = read_against_rewards(queue)
    assert (solved.same, solved.compared, round(together.correlation, 6)) == (8, 8, 1.0)


def test_figures_cost_the_same_however_much_was_reviewed(django_assert_num_queries):
    for pairs in (1, 6):
        queue, ann = make_queue(pairs=pairs, repeat_share=0.5), annotator()
        for _ in range(pairs):
            judge(queue, ann)
        readings = ((read_progress, 1), (read_agreement, 1), (read_against_rewards, 2), (read_against_lengths, 2))
        for reading, queries in readings:
            with django_assert_num_queries(queries):
                reading(queue)
        with django_assert_num_queries(2):
            read_reviewers(queue)


def test_two_rankings_that_share_two_rollouts_are_opinions_of_their_own():
    queue, people = make_queue(pairs=1, size=3, overlap=2), [annotator(username=name) for name in ("ann", "ben")]
    task, ids = queue.items.get().task_id, list(queue.items.get().entries.values_list("rollout_id", flat=True))
    items = fill_from_sets([ids[:2], ids, ids[1::-1]], kind="ranking")
    assert items == [(task, tuple(ids[:2])), (task, tuple(ids))]
    both = create_queue(queue=Queue(name="Both", kind="ranking", overlap=2), items=items, user=None)
    for person, best in zip(people, ([0, 0], [0, 1]), strict=True):
        for _ in items:
            review = claim(both, person)
            favourite = ids[best[len(review.arrangement) == 3]]
            say(review, ranks=[1 if one == favourite else 2 for one in review.arrangement])
    (verdict,) = read_agreement(both)
    # They agree on the two alone; of the three they agree on no pair.
    assert (verdict.units, verdict.percent) == (4, 0.25)
