"""Numbers in, SVG attributes out."""

import pytest

from apps.dashboard.charts.axes import Axis, reward_range
from apps.dashboard.charts.bubbles import draw_bubbles
from apps.dashboard.charts.curves import draw_curves
from apps.dashboard.charts.histogram import draw_histogram
from apps.dashboard.charts.intervals import draw_intervals
from apps.dashboard.charts.scatter import draw_scatter
from apps.dashboard.charts.shares import draw_shares
from apps.rollouts.metrics.collection_comparison import GridCell
from apps.rollouts.metrics.collection_figures import LengthBar
from apps.rollouts.metrics.page_figures import ScatterPoint


def test_a_histogram_is_drawn_to_the_tallest_bar_and_shows_the_rarest():
    drawn = draw_histogram([{"low": 0, "high": 0.5, "count": 1}, {"low": 0.5, "high": 1, "count": 1000}])
    assert [(bar.x, bar.width, bar.height) for bar in drawn.bars] == [(1.0, 178.0, 2.0), (181.0, 178.0, 148.0)]
    assert draw_histogram([]).bars == []


def test_a_bar_leads_to_the_rewards_in_it_alone():
    drawn = draw_histogram([{"low": 0, "high": 0.5, "count": 1}, {"low": 0.5, "high": 1, "count": 1}])
    assert [(bar.from_value, bar.to_value) for bar in drawn.bars] == [("0", "0.4999995"), ("0.5", "1")]


@pytest.mark.parametrize(
    ("low", "high", "values"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 1234.0, [0.0, 500.0, 1000.0]),
        (-0.3, 0.3, [-0.2, 0.0, 0.2]),
        (0.0, 3.0, [0.0, 1.0, 2.0, 3.0]),
    ],
)
def test_ticks_are_at_round_values(low, high, values):
    assert [value for _, value in Axis(low, high, 0.0, 100.0).ticks] == values


def test_an_axis_keeps_what_leaves_it_at_its_ends():
    axis = Axis(0.0, 1.0, 100.0, 0.0)
    assert [axis.place(value) for value in (-1.0, 0.0, 0.25, 1.0, 2.0)] == [100.0, 100.0, 75.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("ends", "drawn"), [((0.2, 0.9), (0.0, 1.0)), ((-1.0, 1.0), (-1.12, 1.12)), ((5.0, 5.0), (4.7, 5.3))]
)
def test_rewards_from_0_to_1_span_the_whole_axis(ends, drawn):
    assert tuple(round(end, 9) for end in reward_range(*ends)) == drawn


def test_points_are_placed_by_length_and_coloured_by_reward():
    drawn = draw_scatter([ScatterPoint(11, 1.0, 100), ScatterPoint(22, 0.0, 50), ScatterPoint(33, 0.5, 0)], [], whole=9)
    assert [(point.x, point.tone) for point in drawn.points] == [(352.0, "ok"), (193.0, "bad"), (34.0, "warn")]
    assert [abs(point.y - y) <= 4 for point, y in zip(drawn.points, (10, 156, 83), strict=True)] == [True] * 3
    assert (drawn.is_sample, drawn.course) == (True, "")


def test_the_course_joins_the_means_by_length():
    bars = [LengthBar(low=0, high=10, count=1, mean_reward=0.0), LengthBar(low=80, high=100, count=1, mean_reward=1.0)]
    assert draw_scatter([ScatterPoint(1, 1.0, 100)], bars, whole=1).course == "49.9,156.0 320.2,10.0"


def test_a_figure_without_points_is_empty_and_breaks_nothing():
    assert draw_scatter([], [], whole=0).points == []
    assert draw_curves([("pass@k", "round", {})]).curves == []
    assert draw_intervals([(None, None)]) == [None]
    assert [part.width for part in draw_shares([("never", 0, "bad")])] == [0.0]


def test_curves_go_by_the_logarithm_of_k_and_have_a_table():
    drawn = draw_curves([("pass@k", "round", {1: 0.5, 2: 0.75, 4: 1.0}), ("majority@k", "square", {1: 0.5, 2: 0.6})])
    assert drawn.x_ticks == [(34.0, 1), (147.0, 2), (260.0, 4)]
    assert drawn.curves[0].line == "34.0,83.0 147.0,46.5 260.0,10.0"
    assert drawn.rows == [(1, [0.5, 0.5]), (2, [0.75, 0.6]), (4, [1.0, None])]


def test_labels_of_curves_do_not_overlap():
    drawn = draw_curves([(name, "round", {1: 0.5, 2: 0.5}) for name in "abc"])
    assert [curve.label_y for curve in drawn.curves] == [83.0, 98.0, 113.0]


def test_interval_bars_share_one_axis():
    first, second = draw_intervals([(0.5, (0.25, 0.75)), (1.0, None)])
    assert (first.x, first.width, first.low, first.high) == (1.0, 79.0, 40.5, 119.5)
    assert (second.width, second.low) == (158.0, None)


def test_bars_of_negative_means_grow_from_zero():
    loss, gain = draw_intervals([(-1.0, None), (1.0, None)])
    assert (loss.x + loss.width, gain.x) == (80.0, 80.0)


def test_bubbles_keep_their_side_of_the_diagonal_and_grow_with_tasks():
    drawn = draw_bubbles([GridCell(0.0, 1.0, 1), GridCell(0.5, 0.5, 4), GridCell(1.0, 0.0, 1)])
    assert [(bubble.tone, bubble.r) for bubble in drawn.bubbles] == [("even", 11.0), ("ok", 6.75), ("bad", 6.75)]
    middle = drawn.bubbles[0]
    assert (middle.x, middle.y) == tuple(sum(ends) / 2 for ends in zip(drawn.start, drawn.end, strict=True))


def test_shares_fill_their_bar():
    parts = draw_shares([("a", 1, "ok"), ("b", 0, "bad"), ("c", 3, "warn")])
    assert [(part.name, part.x, part.width) for part in parts] == [
        ("a", 0.0, 25.0),
        ("b", 25.0, 0.0),
        ("c", 25.0, 75.0),
    ]
