"""Opinions of shown sides become opinions of rollouts."""

from hypothesis import given
from hypothesis import strategies as st

from apps.gym.pairs.verdicts import CHOICES, dense_ranks, mirror, read_choice, read_ranks


@given(st.sampled_from(sorted(CHOICES)), st.tuples(st.integers(1, 99), st.integers(100, 199)))
def test_the_mirrored_choice_of_swapped_sides_is_the_same_verdict(choice, pair):
    assert read_choice(choice, pair) == read_choice(mirror(choice), pair[::-1])


@given(st.lists(st.integers(1, 6), min_size=2, max_size=6).map(dense_ranks), st.randoms())
def test_a_ranking_says_the_same_in_whatever_order_it_was_shown(ranks, drawn):
    shown = list(enumerate(ranks, start=10))
    first = read_ranks([rank for _, rank in shown], [one for one, _ in shown])
    drawn.shuffle(shown)
    again = read_ranks([rank for _, rank in shown], [one for one, _ in shown])
    assert len(first) == len(ranks) * (len(ranks) - 1) // 2
    assert sorted(first, key=lambda one: (one.low, one.high)) == sorted(again, key=lambda one: (one.low, one.high))


def test_ranks_have_no_gaps():
    assert dense_ranks([2, 5, 2, 6]) == [1, 2, 1, 3]
