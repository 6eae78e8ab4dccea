"""Reward by version on the page of a model: a drawing with its numbers beside it, without a script."""

import pytest

from apps.accounts.models import Role
from apps.dashboard.charts.versions_chart import CEILING, FLOOR, LEFT, RIGHT, WIDTH, draw_versions
from apps.rollouts.metrics.model_versions import VersionReward
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_policy_model, make_rollout

pytestmark = pytest.mark.django_db


def reward(mean, confidence=None):
    return VersionReward(
        version="v",
        rollouts=1,
        tasks=1,
        solved=0,
        mean_reward=mean,
        confidence=confidence,
        first_at=None,
        last_at=None,
    )


def test_rewards_from_zero_to_one_are_drawn_on_that_scale_from_left_to_right():
    chart = draw_versions([reward(0.0), reward(0.5, (0.25, 1.25)), reward(1.0)])
    assert [point.y for point in chart.points] == [FLOOR, (FLOOR + CEILING) / 2, CEILING]
    assert [point.number for point in chart.points] == [1, 2, 3]
    step = (WIDTH - LEFT - RIGHT) / 3
    assert [point.x for point in chart.points] == [round(LEFT + step * part, 2) for part in (0.5, 1.5, 2.5)]
    # An interval that leaves the scale ends at its edge.
    assert (chart.points[1].low_y, chart.points[1].high_y) == (FLOOR - (FLOOR - CEILING) / 4, CEILING)
    assert [value for _, value in chart.ticks] == [0.0, 0.5, 1.0]


def test_other_rewards_get_a_scale_that_holds_them_and_their_intervals():
    chart = draw_versions([reward(-3.0, (-4.0, -2.0)), reward(5.0)])
    assert all(CEILING < y < FLOOR for point in chart.points for y in (point.y, point.low_y or point.y))
    (only,) = draw_versions([reward(7.0)]).points
    assert only.y == (FLOOR + CEILING) / 2


def test_of_many_versions_the_numbers_thin_out_and_the_points_do_not():
    chart = draw_versions([reward(0.5)] * 60, first=41)
    assert (len(chart.points), len(chart.numbered)) == (60, 15)
    assert [point.number for point in chart.numbered][:3] == [41, 45, 49]


def test_the_page_has_a_point_and_a_line_of_the_table_for_each_version():
    model = make_policy_model(slug="qwen")
    collection = make_collection(policy_model=model)
    make_rollout(collection, model_version="step-1", reward=0.25)
    make_rollout(collection, model_version="step-2", reward=0.75)
    page = squeezed(signed_in(Role.VIEWER).get("/models/qwen/").text)
    assert page.count('<circle class="mean"') == 2
    assert '<code>step-1</code></a></th><td class="num">0.250</td>' in page
    assert '<code>step-2</code></a></th><td class="num">0.750</td>' in page
    assert "style=" not in page


def test_one_collection_can_be_chosen_without_a_script_and_another_models_is_refused():
    model = make_policy_model(slug="qwen")
    one, other = (make_collection(policy_model=model, rewarded=1) for _ in range(2))
    make_rollout(one, model_version="of-the-one", reward=0.25)
    make_rollout(other, model_version="of-the-other", reward=0.75)
    client = signed_in(Role.VIEWER)
    assert f'<option value="{one.pk}">{one.label}</option>' in client.get("/models/qwen/").text
    page = client.get(f"/models/qwen/?collection={one.pk}").text
    assert ("of-the-one" in page, "of-the-other" in page) == (True, False)
    stranger = make_collection(rewarded=1)
    assert "Select a valid choice" in client.get(f"/models/qwen/?collection={stranger.pk}").text


def test_a_model_without_rewards_says_so_in_words():
    make_policy_model(slug="qwen")
    assert "has a reward yet" in signed_in().get("/models/qwen/").text


def test_more_versions_take_no_more_queries():
    collection = make_collection(policy_model=make_policy_model(slug="qwen"))
    versions = iter("abcdef")
    one, three = queries_with_one_and_three(
        lambda: "/models/qwen/", lambda: make_rollout(collection, model_version=next(versions))
    )
    assert one == three


def test_a_version_leads_to_its_rollouts():
    collection = make_collection(policy_model=make_policy_model(slug="qwen"), rewarded=2)
    mine = make_rollout(collection, model_version="a&b/c 1")
    other = make_rollout(collection, model_version="a")
    client = signed_in(Role.VIEWER)
    page = client.get(f"/models/qwen/?collection={collection.pk}").text
    link = f"/rollouts/?policy_model=qwen&amp;version=a%26b%2Fc%201&amp;collection={collection.pk}"
    assert f'href="{link}"' in page
    found = client.get(link.replace("&amp;", "&")).context["page"].rows
    assert [rollout.pk for rollout in found] == [mine.pk]
    assert other.pk in [rollout.pk for rollout in client.get("/rollouts/?policy_model=qwen").context["page"].rows]
