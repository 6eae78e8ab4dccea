"""The pair rule: best against worst, never a tie, never two attempts that did the same thing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.pairs import OUTCOMES, TOLERANCE, Attempt, Fingerprint, pair_group


def unlike(attempt_id: int) -> Fingerprint:
    return Fingerprint(prompt="p", completion=str(attempt_id))


def group(*rewards: float | None) -> list[Attempt]:
    return [Attempt(id=number, reward=reward) for number, reward in enumerate(rewards, 1)]


attempts = st.lists(
    st.builds(
        dict,
        reward=st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(-10, 10)),
        output_tokens=st.integers(0, 3),
        stop_reason=st.sampled_from(["answered", "environment_done", "max_steps", "max_output_tokens", ""]),
    ),
    max_size=8,
).map(lambda drawn: [Attempt(id=number, **fields) for number, fields in enumerate(drawn)])

fingerprints = st.lists(
    st.builds(Fingerprint, prompt=st.sampled_from("pq"), completion=st.sampled_from("abc")), min_size=8, max_size=8
)


@given(attempts, fingerprints, st.floats(0, 2), st.one_of(st.none(), st.floats(-1, 1)))
def test_a_pair_keeps_every_promise_of_the_rule(drawn, marks, margin, least):
    pair, outcome = pair_group(drawn, lambda number: marks[number], margin=margin, min_chosen_reward=least)
    assert outcome in OUTCOMES
    assert (pair is None) == (outcome != "paired")
    if pair is None:
        return
    chosen, rejected = drawn[pair.chosen], drawn[pair.rejected]
    assert chosen.reward > rejected.reward
    assert pair.margin == chosen.reward - rejected.reward
    assert pair.margin >= margin - TOLERANCE
    assert {chosen.stop_reason, rejected.stop_reason} <= {"answered", "environment_done"}
    assert least is None or chosen.reward >= least - TOLERANCE
    assert marks[pair.chosen].prompt == marks[pair.rejected].prompt
    assert marks[pair.chosen].completion != marks[pair.rejected].completion


@given(attempts, fingerprints, st.floats(0.01, 2))
def test_the_order_of_the_group_does_not_matter(drawn, marks, margin):
    def pair_of(some):
        return pair_group(some, lambda number: marks[number], margin=margin)

    assert pair_of(drawn) == pair_of(drawn[::-1])


@given(attempts)
def test_where_every_attempt_is_its_own_the_widest_gap_is_paired(drawn):
    pair, _ = pair_group(drawn, unlike, margin=0.0)
    rewards = [
        one.reward for one in drawn if one.reward is not None and one.stop_reason in {"answered", "environment_done"}
    ]
    widest = max(rewards) - min(rewards) if rewards else 0.0
    assert (pair.margin if pair else 0.0) == pytest.approx(widest, abs=TOLERANCE)


def test_of_equals_the_shortest_then_the_first_is_taken():
    drawn = [
        Attempt(id=1, reward=1.0, output_tokens=9),
        Attempt(id=2, reward=1.0, output_tokens=4),
        Attempt(id=3, reward=1.0, output_tokens=4),
        Attempt(id=4, reward=0.0, output_tokens=7),
        Attempt(id=5, reward=0.0, output_tokens=7),
    ]
    pair, _ = pair_group(drawn, unlike)
    assert (pair.chosen, pair.rejected, pair.margin) == (2, 4, 1.0)


@pytest.mark.parametrize(
    ("rewards", "rule", "expected"),
    [
        ((), {}, "too_few_attempts"),
        ((1.0,), {}, "too_few_attempts"),
        ((1.0, None), {}, "too_few_attempts"),
        ((0.5, 0.5, 0.5), {}, "tie"),
        ((0.5, 0.5), {"margin": 0.0}, "tie"),
        ((0.5, 0.45), {}, "below_margin"),
        ((0.3, 0.0), {"min_chosen_reward": 0.5}, "chosen_too_weak"),
        ((1.0, 0.9), {"margin": 0.1}, "paired"),
        ((2.0, -1.0), {}, "paired"),
    ],
)
def test_every_group_has_a_named_outcome(rewards, rule, expected):
    assert pair_group(group(*rewards), unlike, **rule)[1] == expected


@pytest.mark.parametrize(
    "stop_reason", ["max_steps", "max_output_tokens", "context_length", "time_limit", "content_filter", "empty_reply"]
)
def test_cut_attempts_are_on_neither_side(stop_reason):
    cut = Attempt(id=3, reward=2.0, stop_reason=stop_reason)
    cut_low = Attempt(id=4, reward=-2.0, stop_reason=stop_reason)
    pair, _ = pair_group([*group(1.0, 0.0), cut, cut_low], unlike)
    assert (pair.chosen, pair.rejected) == (1, 2)


def test_the_same_deed_with_two_rewards_is_no_pair():
    same = Fingerprint(prompt="p", completion="c")
    assert pair_group(group(1.0, 0.0), lambda _: same) == (None, "identical_completions")


def test_the_next_worst_is_taken_where_the_worst_did_the_same_as_the_best():
    marks = {1: "a", 2: "a", 3: "b"}
    pair, _ = pair_group(group(1.0, 0.0, 0.2), lambda n: Fingerprint(prompt="p", completion=marks[n]))
    assert (pair.chosen, pair.rejected) == (1, 3)


def test_attempts_at_different_prompts_are_not_compared():
    assert pair_group(group(1.0, 0.0), lambda n: Fingerprint(prompt=str(n), completion=str(n))) == (
        None,
        "different_prompts",
    )


def test_traces_are_not_read_for_groups_that_rewards_rule_out():
    def refuse(_: int) -> Fingerprint:
        raise AssertionError("read")

    assert pair_group(group(1.0, 1.0), refuse)[1] == "tie"
