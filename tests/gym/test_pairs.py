"""Pair rules against a plain reference over generated groups, and each promise of theirs by itself."""

from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.pairs import pair_making
from apps.gym.pairs.pair_making import needed_courses, pair_group
from apps.gym.pairs.pair_rule import (
    OUTCOMES,
    TOLERANCE,
    Attempt,
    Exclusion,
    Pair,
    Rule,
    RuleRefused,
    Verdict,
    check_rule,
    find_exclusion,
    read_rule,
    rule_digest,
)
from apps.gym.traces.courses import Course, Step
from tests.gym.pair_reference import Reference, every_two, follows

MODES = ["best_worst", "best_vs_all", "all", "best_mu_2sigma", "nearest_length"]
LEVELS = ["trajectory", "step"]


def make_course(prompt: str, acts: str, *, thoughts: str = "", lengths: str = "") -> Course:
    """Small letters are answers of the environment, large ones turns of the model."""
    written = [int(length) for length in lengths] or [1] * len(acts)
    steps = tuple(
        Step(letter.isupper(), letter.encode(), written[place % len(written)] if letter.isupper() else 0)
        for place, letter in enumerate(acts)
    )
    actions = "".join(filter(str.isupper, acts)).encode()
    return Course(prompt=prompt, completion=acts + thoughts, actions=actions, steps=steps)


def different(ids: list[int]) -> dict[int, Course]:
    steps = {one: (Step(True, bytes([one]), 1),) for one in ids}
    return {one: Course(prompt="p", completion=str(one), actions=bytes([one]), steps=steps[one]) for one in ids}


rewards = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.floats(-10, 10))
attempts = st.lists(
    st.builds(
        dict,
        reward=rewards,
        output_tokens=st.integers(0, 3),
        stop_reason=st.sampled_from(["answered", "answered", "environment_done", "max_steps"]),
        flagged=st.sampled_from([False, False, False, True]),
        overridden=st.booleans(),
        failed=st.sampled_from([False, False, False, False, True]),
    ),
    max_size=7,
).map(lambda drawn: [draw_attempt(number, dict(fields)) for number, fields in enumerate(drawn, 1)])
course = st.builds(
    make_course,
    st.sampled_from("ppq"),
    st.sampled_from(["A", "B", "AxA", "AxB", "AyA", "AxC", "B", "BxA", "AxBxC", "AxBxD", "C"]),
    thoughts=st.sampled_from(["", "hm"]),
    lengths=st.sampled_from(["1", "2", "19", "93", "5"]),
)
courses = st.lists(course, min_size=7, max_size=7).map(lambda drawn: dict(enumerate(drawn, 1)))
rules = st.builds(
    Rule,
    mode=st.sampled_from(MODES),
    level=st.sampled_from(LEVELS),
    margin=st.sampled_from([0.0, 0.1, 0.25, 0.5]),
    min_chosen_reward=st.sampled_from([None, None, 0.5, 1.0]),
    per_task=st.sampled_from([None, None, 1, 2, 5]),
    max_length_ratio=st.sampled_from([None, None, 1.0, 2.0, 5.0]),
    same=st.sampled_from(["actions", "completions"]),
    include_truncated=st.booleans(),
    include_redacted=st.booleans(),
)


def draw_attempt(number: int, fields: dict[str, Any]) -> Attempt:
    if fields.pop("failed"):
        fields |= {"status": "failed", "error_kind": "judge_error", "stop_reason": "", "reward": None}
    return Attempt(id=number, **fields)


@st.composite
def judged(draw: Any, ids: list[int]) -> list[Verdict]:
    found = []
    for one, other in draw(st.lists(st.sampled_from(every_two(ids)), max_size=6, unique=True)) if len(ids) > 1 else []:
        winner = draw(st.sampled_from([one, other, None]))
        found.append(
            Verdict(
                one=one,
                other=other,
                winner=winner,
                without=draw(st.sampled_from(["equal", "both_bad", "split"])),
                strength=draw(st.integers(1, 2)),
            )
        )
    return found


@settings(max_examples=400)
@given(st.data(), attempts, courses, rules)
def test_every_mode_and_guard_agrees_with_the_reference(data, drawn, ways, rule):
    verdicts = data.draw(judged([one.id for one in drawn]))
    expected, outcome = Reference(drawn, ways, rule, verdicts).result()
    with pytest.MonkeyPatch.context() as patch:
        # As large groups are paired, too.
        patch.setattr(pair_making, "LARGE_GROUP", data.draw(st.sampled_from([0, pair_making.LARGE_GROUP])))
        found = pair_group(drawn, ways, rule, verdicts)
    assert [(pair.chosen, pair.rejected, pair.source, pair.turn) for pair in found.pairs] == expected
    assert found.outcome == outcome
    assert found.outcome in OUTCOMES


@given(st.data(), attempts, courses, rules)
def test_the_order_of_attempts_and_verdicts_does_not_matter(data, drawn, ways, rule):
    verdicts = data.draw(judged([one.id for one in drawn]))
    assert pair_group(drawn, ways, rule, verdicts) == pair_group(drawn[::-1], ways, rule, verdicts[::-1])


@given(st.data(), attempts, courses, rules)
def test_courses_are_read_of_those_alone_that_are_named(data, drawn, ways, rule):
    verdicts = data.draw(judged([one.id for one in drawn]))
    named = {one: ways[one] for one in needed_courses(drawn, rule, verdicts)}
    assert pair_group(drawn, named, rule, verdicts) == pair_group(drawn, ways, rule, verdicts)


@given(st.data(), attempts, courses, rules)
def test_a_pair_keeps_every_promise_of_its_rule(data, drawn, ways, rule):
    verdicts = {frozenset({one.one, one.other}): one for one in data.draw(judged([one.id for one in drawn]))}
    known, better = {one.id: one for one in drawn}, follows(verdicts.values())
    found = pair_group(drawn, ways, rule, verdicts.values()).pairs
    for pair in found:
        chosen, rejected = known[pair.chosen], known[pair.rejected]
        verdict = verdicts.get(frozenset({pair.chosen, pair.rejected}))
        assert ways[pair.chosen].prompt == ways[pair.rejected].prompt
        assert ways[pair.chosen].completion != ways[pair.rejected].completion
        assert {find_exclusion(one, rule) for one in (chosen, rejected)} <= {None, "no_reward"}
        if verdict is None:
            assert pair.source in ("reward", "override")
            assert (pair.rejected, pair.chosen) not in better
            assert pair.margin == chosen.reward - rejected.reward
            assert pair.margin > TOLERANCE
            assert pair.margin >= rule.margin - TOLERANCE
            assert rule.min_chosen_reward is None or chosen.reward >= rule.min_chosen_reward - TOLERANCE
        else:
            assert (pair.source, pair.margin, verdict.winner) == ("verdict", None, pair.chosen)
    assert rule.cap is None or len(found) <= rule.cap
    assert len({frozenset({pair.chosen, pair.rejected}) for pair in found}) == len(found)


def group(*given: float | None) -> list[Attempt]:
    return [Attempt(id=number, reward=reward) for number, reward in enumerate(given, 1)]


def sides(pairs: list[Pair]) -> list[tuple[int, int]]:
    return [(pair.chosen, pair.rejected) for pair in pairs]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("best_worst", [(1, 5)]),
        ("best_vs_all", [(1, 5), (1, 4), (1, 3), (1, 2)]),
        ("all", [(1, 5), (1, 4), (2, 5), (1, 3), (2, 4), (3, 5), (1, 2), (2, 3), (3, 4), (4, 5)]),
        # The mean is 0.5 and the deviation 0.3536: −0.207 is nearest to the worst.
        ("best_mu_2sigma", [(1, 5)]),
    ],
)
def test_what_each_mode_makes_of_five_different_rewards(mode, expected):
    made = pair_group(group(1.0, 0.75, 0.5, 0.25, 0.0), different([1, 2, 3, 4, 5]), Rule(mode=mode))
    assert sides(made.pairs) == expected


def test_two_deviations_below_the_mean_is_not_the_outlier():
    """Of thirty attempts one is far out: the worst is an accident of many samples, what is near μ − 2σ is not."""
    given = [0.6, 0.4] * 14 + [0.9, -3.0]
    made = [pair_group(group(*given), different([*range(1, 31)]), Rule(mode=mode)).pairs[0] for mode in MODES[:4:3]]
    assert [given[pair.rejected - 1] for pair in made] == [-3.0, 0.4]


def test_nearest_length_prefers_two_that_wrote_as_much_over_a_larger_margin():
    ways = {
        1: make_course("p", "A", lengths="8"),
        2: make_course("p", "B", lengths="1"),
        3: make_course("p", "C", lengths="7"),
    }
    assert sides(pair_group(group(1.0, 0.0, 0.5), ways, Rule(mode="nearest_length")).pairs) == [(1, 3)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("mode", "acts", "outcome"),
    [
        ("nearest_length", lambda number: f"A{number}", "paired"),
        ("nearest_length", lambda number: "B" if number == 1 else "A", "paired"),
        *((mode, lambda number: "A", "same_actions") for mode in MODES),
    ],
)
def test_a_large_group_is_paired_without_looking_at_every_two(level, mode, acts, outcome):
    """Of 400 attempts there are 79,800 twos."""
    numbers = range(1, 401)
    ways = {}
    for number in numbers:
        steps = (Step(True, acts(number).encode(), 100 + 3 * number),)
        ways[number] = Course(prompt="p", completion=str(number), actions=steps[0].digest, steps=steps)
    compared: list[None] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_making, "COMPARISONS_PER_STEP", 1)
        made = pair_group(
            [Attempt(id=number, reward=number % 7 / 7, output_tokens=number) for number in numbers],
            ways,
            Rule(mode=mode, level=level),
            on_step=lambda: compared.append(None),
        )
    assert made.outcome == outcome
    assert len(compared) < 1000


def test_two_that_said_the_same_in_other_turns_are_passed_over():
    """What is nearest by what was done is refused; the next is found."""
    ways = {
        1: make_course("p", "A", lengths="5"),
        2: msgspec.structs.replace(make_course("p", "B", lengths="5"), completion="A"),
        3: make_course("p", "C", lengths="9"),
        4: make_course("p", "D", lengths="7"),
    }
    assert sides(pair_group(group(1.0, 0.0, 0.0, 0.0), ways, Rule(mode="nearest_length")).pairs) == [(1, 4)]


def test_the_next_worst_is_paired_where_the_worst_did_the_same():
    ways = {1: make_course("p", "A"), 2: make_course("p", "A"), 3: make_course("p", "B")}
    assert sides(pair_group(group(1.0, 0.0, 0.2), ways, Rule()).pairs) == [(1, 3)]


def test_two_that_thought_differently_and_did_the_same_differ_only_where_thoughts_count():
    ways = {1: make_course("p", "AxB"), 2: make_course("p", "AxB", thoughts="hm")}
    assert pair_group(group(1.0, 0.0), ways, Rule()).outcome == "same_actions"
    assert sides(pair_group(group(1.0, 0.0), ways, Rule(same="completions")).pairs) == [(1, 2)]


def test_duplicate_actions_form_one_pair():
    ways = {1: make_course("p", "A"), 2: make_course("p", "B"), 3: make_course("p", "B", thoughts="hm")}
    assert sides(pair_group(group(1.0, 0.0, 0.0), ways, Rule(mode="all")).pairs) == [(1, 2)]


def test_a_step_pair_begins_where_the_actions_differ():
    ways = {1: make_course("p", "AxBxC"), 2: make_course("p", "AxBxDxE")}
    pair = pair_group(group(1.0, 0.0), ways, Rule(level="step")).pairs[0]
    assert (pair.turn, pair.chosen, pair.rejected) == (2, 1, 2)
    other = {1: make_course("p", "AxB"), 2: make_course("p", "AyC")}
    assert pair_group(group(1.0, 0.0), other, Rule(level="step")).outcome == "states_differ"
    assert pair_group(group(1.0, 0.0), other, Rule()).outcome == "paired"


def test_a_human_verdict_beats_the_reward():
    one = Verdict(one=1, other=2, winner=2, strength=2, reviewers=3, agreement=0.67)
    made = pair_group(group(1.0, 0.0), different([1, 2]), Rule(min_chosen_reward=0.5), [one]).pairs
    assert made == [
        Pair(
            chosen=2,
            rejected=1,
            margin=None,
            source="verdict",
            strength=2,
            reviewers=3,
            agreement=0.67,
            chosen_length=1,
            rejected_length=1,
        )
    ]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", ["best_worst", "all"])
def test_rewards_do_not_turn_a_verdict_round_between_two_others_that_did_the_same(mode, level):
    """People preferred 2 to 1, which is too long for the rule; 3 did what 1 did, in fewer words."""
    ways = {
        1: make_course("p", "A", thoughts="hm", lengths="9"),
        2: make_course("p", "B", lengths="1"),
        3: make_course("p", "A", lengths="1"),
    }
    rule = Rule(mode=mode, level=level, max_length_ratio=2.0)
    made = pair_group(group(1.0, 0.0, 1.0), ways, rule, [Verdict(one=1, other=2, winner=2)])
    assert (made.pairs, made.outcome) == ([], "lengths_differ")
    twice = [Verdict(one=1, other=2, winner=2, strength=2), Verdict(one=2, other=3, winner=2)]
    assert sides(pair_group(group(1.0, 0.0, 1.0), ways, rule, twice).pairs) == [(2, 3)]


def won(*winners_and_losers: tuple[int, int]) -> list[Verdict]:
    return [Verdict(one=min(two), other=max(two), winner=two[0]) for two in winners_and_losers]


def test_rewards_do_not_turn_round_what_follows_from_two_verdicts():
    """People prefer 2 to 1 and 1 to 3, so 3 is the worst, whose reward is the best; that 2 is better nobody said."""
    given, ways = group(0.5, 0.0, 1.0), different([1, 2, 3])
    for mode in MODES:
        made = pair_group(given, ways, Rule(mode=mode), won((2, 1), (1, 3)))
        assert sides(made.pairs) == [(2, 1), (1, 3)]
    # Nor where it follows through one that is not used.
    cut = [msgspec.structs.replace(given[0], stop_reason="max_steps"), *given[1:]]
    made = pair_group(cut, ways, Rule(), won((2, 1), (1, 3)))
    assert (made.pairs, made.outcome) == ([], "preference_cycle")
    # What follows is made where the rewards say so as well.
    agreeing = pair_group(group(0.5, 1.0, 0.0), ways, Rule(mode="all"), won((2, 1), (1, 3))).pairs
    assert [(pair.chosen, pair.rejected, pair.source) for pair in agreeing][2:] == [(2, 3, "reward")]


@pytest.mark.parametrize("level", LEVELS)
def test_rewards_do_not_turn_it_round_between_two_others_that_did_the_same(level):
    ways = {1: make_course("p", "A"), 2: make_course("p", "B"), 3: make_course("p", "C")}
    ways |= {4: make_course("p", "C", thoughts="hm"), 5: make_course("p", "B", thoughts="hm")}
    rule = Rule(mode="all", level=level)
    made = pair_group(group(None, 0.5, 0.5, 1.0, 0.0), ways, rule, won((2, 1), (1, 3))).pairs
    assert sides(made) == [(2, 1), (1, 3)]


def test_where_people_contradict_themselves_their_verdicts_say_no_more_than_they_say():
    """1, 2, 3 and 4 each lose to the one before, and 1 to 4: of 1 and 3, and 2 and 4, nothing follows."""
    ring = won((1, 2), (2, 3), (3, 4), (4, 1))
    made = pair_group(group(0.0, 0.25, 0.5, 1.0), different([1, 2, 3, 4]), Rule(mode="all"), ring).pairs
    assert sides(made) == [(1, 2), (4, 1), (2, 3), (3, 4), (4, 2), (3, 1)]
    assert [pair.source for pair in made] == ["verdict"] * 4 + ["reward"] * 2
    # 5 beats one of them and another beats 6, so that 5 would be better than 6 only through the ring.
    out = pair_group(
        group(0, 0, 0, 0, 0, 1), different([*range(1, 7)]), Rule(mode="all"), [*ring, *won((5, 1), (3, 6))]
    )
    assert (6, 5) in sides(out.pairs)


def test_a_verdict_between_attempts_after_other_prompts_says_nothing_of_two_that_share_one():
    ways = {1: make_course("p", "A"), 2: make_course("q", "B"), 3: make_course("p", "B"), 4: make_course("p", "A")}
    for one, other in ((1, 2), (2, 1)):
        verdict = Verdict(one=one, other=other, without="both_bad")
        assert sides(pair_group(group(1.0, 0.0, 0.0, 1.0), ways, Rule(), [verdict]).pairs) == [(1, 3)]


@pytest.mark.parametrize("found", ["equal", "both_bad", "split"])
def test_two_of_whom_people_preferred_none_are_no_pair(found):
    forbidden = Verdict(one=1, other=2, without=found)
    assert pair_group(group(1.0, 0.0), different([1, 2]), Rule(), [forbidden]).outcome == f"judged_{found}"
    three = pair_group(group(1.0, 0.0, 0.5), different([1, 2, 3]), Rule(), [forbidden]).pairs
    assert sides(three) == [(1, 3)]


def test_reviewers_can_pair_rollouts_without_rewards():
    made = pair_group(group(None, None), different([1, 2]), Rule(), [Verdict(one=1, other=2, winner=1)]).pairs
    assert [(pair.chosen, pair.margin, pair.source) for pair in made] == [(1, None, "verdict")]
    assert pair_group(group(None, None), different([1, 2]), Rule()).outcome == "too_few_attempts"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "queued"}, "not_finished"),
        ({"status": "failed", "error_kind": "policy_error"}, "failed"),
        ({"status": "failed", "error_kind": "judge_error"}, "judge_failed"),
        ({"status": "cancelled"}, "cancelled"),
        ({"stop_reason": "max_steps"}, "truncated"),
        ({"flagged": True}, "redacted"),
        ({"masked": "provider_oom_killed", "reward": None}, "masked"),
        ({"reward": None}, "no_reward"),
        ({}, None),
    ],
)
def test_every_attempt_that_is_left_out_has_its_reason(fields, reason):
    attempt = msgspec.structs.replace(Attempt(id=1, reward=1.0), **fields)
    assert find_exclusion(attempt, Rule()) == reason
    assert reason is None or reason in get_args(Exclusion)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"margin": -0.1}, "margin"),
        ({"margin": float("nan")}, "margin"),
        ({"min_chosen_reward": float("inf")}, "min_chosen_reward"),
        ({"per_task": 0}, "per_task"),
        ({"max_length_ratio": 0.5}, "max_length_ratio"),
        ({"mode": "worst"}, "mode"),
        ({"level": "turn"}, "level"),
    ],
)
def test_a_rule_that_means_nothing_is_refused_by_its_field(given, field):
    with pytest.raises(RuleRefused) as refusal:
        read_rule(given)
    assert refusal.value.field == field


def test_an_unknown_rule_is_refused():
    with pytest.raises(RuleRefused, match="unknown field `magic`"):
        read_rule({"magic": 1})


def test_a_digest_is_that_of_the_settings_however_they_were_given():
    check_rule(Rule())
    assert (
        rule_digest(Rule(mode="all"))
        == rule_digest(Rule(mode="all", per_task=10))
        == rule_digest(read_rule({"mode": "all"}))
    )
    others: list[Callable[[], Rule]] = [lambda: Rule(margin=0.2), lambda: Rule(level="step"), lambda: Rule(mode="all")]
    assert len({rule_digest(Rule()), *(rule_digest(one()) for one in others)}) == 4
