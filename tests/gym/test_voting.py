"""majority@k against voting in every draw, and which answers count as the same."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.metrics.majority_at_k import MAX_ANSWER, Answers, comparable_answer, majority_at_k, mean_majority_at_k
from apps.gym.metrics.pass_at_k import mean_pass_at_k
from apps.gym.traces.items import message


def vote(draw):
    """What one draw of (answer, solved share of that answer) scores: the most frequent answers, each as likely."""
    votes = Counter(answer for answer, _ in draw if answer is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    winners = [answer for answer, count in votes.items() if count == most]
    scores = dict(draw)
    return sum(scores[answer] for answer in winners) / len(winners)


groups = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans()), min_size=1, max_size=8)


@given(groups, st.data())
def test_majority_at_k_is_what_voting_in_every_draw_gives(group, data):
    k = data.draw(st.integers(1, len(group)))
    counts = Counter(answer for answer, _ in group)
    solved = Counter(answer for answer, right in group if right)
    answers = [Answers(count, solved[answer], answer is not None) for answer, count in counts.items()]
    attempts = [(answer, solved[answer] / counts[answer]) for answer, _ in group]
    draws = list(combinations(attempts, k))
    assert majority_at_k(answers, k) == pytest.approx(sum(map(vote, draws)) / len(draws))


def test_majority_at_k_by_hand():
    # Of three draws of two from {a, a, b}, one is (a, a), two are ties: 1, 1/2, 1/2 where a is right.
    assert majority_at_k([Answers(2, 2), Answers(1, 0)], 2) == pytest.approx(2 / 3)
    assert majority_at_k([Answers(2, 2), Answers(1, 0)], 3) == 1.0
    assert majority_at_k([Answers(4, 0, votes=False)], 4) == 0.0
    with pytest.raises(ValueError, match="majority@3 of 2 attempts is not defined"):
        majority_at_k([Answers(2, 1)], 3)


def test_majority_of_one_is_pass_at_one_among_attempts_that_answer():
    shapes = {(Answers(3, 3), Answers(1, 0)): 2, (Answers(4, 0),): 1}
    assert mean_majority_at_k(shapes)[1] == pytest.approx(mean_pass_at_k({(4, 3): 2, (4, 0): 1})[1])
    assert list(mean_majority_at_k(shapes)) == [1, 2, 3, 4]


def test_majority_of_a_large_group_is_counted_quickly():
    everybody_else = [Answers(1, 0) for _ in range(150)]
    assert majority_at_k([Answers(50, 50), *everybody_else], 64) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "details", "answer"),
    [
        ("So it is\nThe answer is: Paris.", {}, "paris"),
        ("It is $\\boxed{ 4  2 }$, I think.", {}, "4 2"),
        ("It is B", {"extracted_answer": "C"}, "c"),
        ("It is B", {"extracted_answer": None}, ""),
        ("It is B", {"extracted_answer": 4.5}, "4.5"),
        ("", {}, ""),
        ("Ｆｕｌｌ width", {}, "full width"),
    ],
)
def test_answers_that_mean_the_same_are_equal(text, details, answer):
    assert comparable_answer([message("assistant", text)], details) == answer


def test_a_long_answer_is_cut_and_still_told_apart():
    one, other = (comparable_answer([message("assistant", "x" * 5_000 + end)], {}) for end in "ab")
    assert len(one) <= MAX_ANSWER
    assert one != other
