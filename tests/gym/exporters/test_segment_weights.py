"""A rollout counts once in its group, however many segments its tokens have."""

import pytest
from msgspec.structs import replace

from apps.gym.exporters.protocol import Options
from apps.gym.exporters.registry import FORMATS
from apps.gym.exporters.scored import group_figures, measure_group
from apps.gym.traces.events import ModelCall
from tests.gym.exporters.attempts import attempt
from tests.gym.traces import said, trace, turn, with_tokens

OPTIONS = {
    "scored_rollouts": Options(reasoning="field", arguments="text", tools="text"),
    "trl_sft_tokens": Options(),
    "trl_sft_turns": Options(),
}
THREE = with_tokens(
    trace(turn(said("a")), turn(said("b")), turn(said("c"))), ([1, 2], [3]), ([7, 8], [9]), ([4, 5], [6])
)
ONE = with_tokens(trace(turn(said("a"))), ([1, 2], [3]))


@pytest.mark.parametrize("format", OPTIONS)
@pytest.mark.parametrize("branches", ["main", "longest", "all", "conversation"])
def test_the_weights_of_a_rollout_sum_to_one(format: str, branches: str) -> None:
    for events, segments in ((THREE, 3), (ONE, 1)):
        rows = list(FORMATS[format].rows(attempt(events), replace(OPTIONS[format], branches=branches)))
        assert [row["weight"] for row in rows] == [pytest.approx(1 / segments)] * segments
        assert "weight" in FORMATS[format].features(replace(OPTIONS[format], branches=branches))


@pytest.mark.parametrize("format", ["scored_rollouts", "trl_sft_tokens"])
@pytest.mark.parametrize("branches", ["main", "all"])
def test_segments_that_are_all_masked_do_not_count(format: str, branches: str) -> None:
    events = [
        replace(one, grammar=place == 2) if isinstance(one, ModelCall) else one for place, one in enumerate(THREE)
    ]
    rows = list(FORMATS[format].rows(attempt(events), replace(OPTIONS[format], branches=branches)))
    trained = [row["weight"] for row in rows if {*row.get("loss_mask", ()), *row.get("labels", ())} - {0, -100}]
    assert trained == [0.5, 0.5]


def test_segments_share_the_advantage_of_a_group_in_which_each_rollout_counts_once() -> None:
    group = measure_group([1.0, 0.0])
    rows = [
        list(FORMATS["scored_rollouts"].rows(attempt(events, reward=reward, group=group), OPTIONS["scored_rollouts"]))
        for events, reward in ((THREE, 1.0), (ONE, 0.0))
    ]
    assert [[row["advantage_mean_only"] for row in each] for each in rows] == [[0.5, 0.5, 0.5], [-0.5]]
    assert {row["group_mean"] for each in rows for row in each} == {0.5}


@pytest.mark.parametrize("rewards", [[0.999999, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0], [0.0], [0.1 + 0.2, 0.3]])
def test_groups_without_usable_spread_have_no_advantage(rewards: list[float]) -> None:
    group = measure_group(rewards)
    assert group and group.zero_variance
    figures = [group_figures(reward, group) for reward in rewards]
    assert {one["advantage"] for one in figures} | {one["advantage_mean_only"] for one in figures} == {0.0}


def test_a_small_difference_is_a_usable_spread() -> None:
    group = measure_group([0.999, 1.0])
    assert group and not group.zero_variance
    assert measure_group([]) is None
