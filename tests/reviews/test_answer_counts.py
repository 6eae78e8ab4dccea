"""Counts of the answers in a queue, and how often each model was preferred."""

import pytest

from apps.reviews.agreement.answer_counts import MAX_VALUES, read_answers, read_wins
from apps.reviews.agreement.queue_figures import read_figures
from apps.reviews.models import Queue, Review
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.rollouts.models import Rollout
from tests.factories import make_collection, make_policy_model, make_rollout
from tests.reviews.queues import annotator, claim, judge, make_queue, make_rubric, say

pytestmark = pytest.mark.django_db


def compare_models(*names: str, **fields: object) -> Queue:
    """A queue that compares the rollouts of these models of one task."""
    first = make_collection(policy_model=make_policy_model(slug=names[0], name=names[0]))
    task = first.version.tasks.get(index=0)
    others = [
        make_collection(dataset=first.version.dataset, policy_model=make_policy_model(slug=name, name=name))
        for name in names[1:]
    ]
    ids = [make_rollout(each, task=task).pk for each in (first, *others)]
    kind = "pairwise" if len(ids) == 2 else "ranking"
    queue = Queue(**{"name": "Models", "kind": kind, "seed": 7, "overlap": 3, **fields})
    return create_queue(queue=queue, items=fill_from_sets([ids], kind=kind), reviewers=[], user=None)


def model_of(pk: int) -> str:
    return Rollout.objects.get(pk=pk).collection.policy_model.slug


def test_verdicts_are_counted_as_shown_without_repeats():
    queue, ann = make_queue(pairs=4, repeat_share=0.5), annotator()
    assert read_answers(queue) == []
    for choice in ("a", "a", "equal", "b_much", "both_bad", "both_bad"):
        judge(queue, ann, choice)
    first = Review.objects.filter(queue=queue).independent().values_list("choice", flat=True)
    (answers,) = read_answers(queue)
    assert (answers.total, [label for label, _ in answers.counts][1:3]) == (4, ["A better", "Equal"])
    assert dict(answers.counts)["Both bad"] == list(first).count("both_bad")
    assert read_answers(queue, could_see_results=True) == []


def test_scores_are_counted_by_criterion_with_the_mean_of_numbers():
    queue, ann = make_queue(pairs=3, size=1), annotator()
    for clear in (2, 4, 4):
        judge(queue, ann, scores={"right": clear == 2, "clear": clear, "why": "Because."})
    right, clear = read_answers(queue)
    assert (right.counts, right.mean) == ([("yes", 1), ("no", 2)], None)
    assert (clear.counts, clear.mean) == ([("2", 1), ("4", 2)], pytest.approx(10 / 3))


def test_many_different_numbers_show_only_their_mean():
    criterion = {"key": "size", "label": "Size", "kind": "numeric", "minimum": 0, "maximum": 50}
    queue, ann = make_queue(pairs=MAX_VALUES + 1, size=1, rubric=make_rubric(criteria=[criterion])), annotator()
    for size in range(MAX_VALUES + 1):
        judge(queue, ann, scores={"size": size})
    (answers,) = read_answers(queue)
    assert (answers.counts, answers.mean, answers.total) == ([], MAX_VALUES / 2, MAX_VALUES + 1)


def test_wins_count_comparisons_of_different_models():
    queue = compare_models("one", "two", shows_model=True)
    for side in ("one", "one", None):
        review = claim(queue, annotator())
        say(review, "equal" if side is None else "ab"[[model_of(pk) for pk in review.arrangement].index(side)])
    assert [(each.slug, each.compared, each.won, each.lost) for each in read_wins(queue)] == [
        ("one", 3, 2, 0),
        ("two", 3, 0, 2),
    ]
    same = make_queue(pairs=1, shows_model=True)
    judge(same, annotator())
    assert read_wins(same) == []


def test_an_open_queue_that_hides_models_tells_no_wins():
    queue = compare_models("one", "two", "three")
    judge(queue, annotator(), ranks=[1, 2, 3])
    assert read_wins(queue) == []
    Queue.objects.update(closed_at=queue.created_at)
    queue.refresh_from_db()
    assert sorted((each.compared, each.won) for each in read_wins(queue)) == [(2, 0), (2, 1), (2, 2)]


def test_the_time_left_includes_hidden_repeats():
    queue, ann = make_queue(pairs=4, repeat_share=0.5), annotator()
    judge(queue, ann)
    Review.objects.update(seconds=60.0)
    figures = read_figures(queue)
    assert (figures.progress.wanted, figures.progress.repeats, figures.seconds_left) == (4, 2, 5 * 60.0)
