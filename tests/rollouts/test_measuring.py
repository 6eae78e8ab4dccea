"""The figures of a collection, counted by the database, against figures worked out by hand."""

import dataclasses
import json

import pytest

from apps.gym.rewards import MAX_REWARD
from apps.rollouts.metrics.collection_figures import measure_collection
from tests.factories import make_collection, make_dataset, make_rollout, make_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def measured():
    """Three tasks: solved always, sometimes, never; one failed and one cancelled rollout, one cut short."""
    collection = make_collection(dataset=make_dataset([make_row(str(n)) for n in range(3)]))
    first, second, third = collection.version.tasks.order_by("index")
    work = {"input_tokens": 10, "output_tokens": 4, "trace": []}
    for reward in (1.0, 1.0):
        make_rollout(collection, task=first, reward=reward, components={"correct": reward}, duration=2.0, **work)
    make_rollout(collection, task=second, reward=1.0, components={"correct": 1.0, "format": 0.5}, turns=5, **work)
    make_rollout(collection, task=second, reward=0.3, components={"correct": 0.0}, stop_reason="max_steps", **work)
    make_rollout(collection, task=third, reward=0.0, **work)
    make_rollout(
        collection, task=third, status="failed", reward=None, error_kind="policy_error", stop_reason="", **work
    )
    make_rollout(collection, task=third, status="cancelled", reward=None, stop_reason="", **work)
    make_rollout(make_collection(), reward=0.123, components={"other": 1.0}, **work)
    return measure_collection(collection)


def test_rollouts_are_counted_by_how_they_ended(measured):
    assert (measured.rollouts, measured.completed, measured.failed, measured.cancelled) == (7, 5, 1, 1)
    assert measured.stop_reasons == {"answered": 4, "max_steps": 1}
    assert measured.errors == {"policy_error": 1}


def test_a_failed_rollout_is_no_reward_of_zero(measured):
    assert measured.rewarded == 5
    assert measured.mean_reward == pytest.approx(3.3 / 5)
    assert measured.std == pytest.approx(0.47749, abs=1e-5)
    assert (measured.min_reward, measured.max_reward) == (0.0, 1.0)


def test_the_standard_error_counts_tasks_not_attempts(measured):
    squares = (2 - 2 * 0.66) ** 2 + (1.3 - 2 * 0.66) ** 2 + (0 - 0.66) ** 2
    assert measured.standard_error == pytest.approx((squares * 3 / 2) ** 0.5 / 5)
    assert measured.confidence is None  # three tasks


def test_rollouts_without_a_reward_are_missing(measured):
    assert (measured.rollouts, measured.rewarded, measured.missing) == (7, 5, 2)


def test_pass_at_k_is_averaged_over_tasks(measured):
    assert measured.pass_at_1 == pytest.approx((1 + 0.5 + 0) / 3)
    assert measured.pass_at_k == {1: pytest.approx(0.5), 2: pytest.approx(1.0)}
    assert measured.groups == {"never": 1, "sometimes": 1, "always": 1}


def test_the_histogram_puts_an_edge_into_the_bar_above_it(measured):
    assert [bar["count"] for bar in measured.histogram] == [1, 0, 0, 1, 0, 0, 0, 0, 0, 3]


def test_components_are_averaged_where_they_were_given(measured):
    assert measured.components == {"correct": pytest.approx(0.75), "format": 0.5}


def test_work_is_summed_over_all_and_averaged_over_the_completed(measured):
    assert measured.tokens == {"input": 70, "output": 28}
    assert measured.mean_turns == pytest.approx(13 / 5)
    assert measured.mean_duration == pytest.approx(0.8)


def test_reward_and_components_have_a_spread(measured):
    assert measured.median == 1.0
    correct, form = measured.component_figures
    assert (correct.name, correct.count, correct.mean, correct.median) == ("correct", 4, 0.75, 1.0)
    assert correct.std == pytest.approx(0.5)
    assert correct.confidence is None  # two tasks
    assert (form.count, form.std, form.confidence) == (1, None, None)


def test_groups_average_and_vote():
    collection = make_collection(dataset=make_dataset([make_row(str(n)) for n in range(2)]))
    first, second = collection.version.tasks.order_by("index")
    for answer, reward in (("4", 1.0), ("4", 1.0), ("5", 0.0), ("", 0.0)):
        make_rollout(collection, task=first, answer=answer, reward=reward, trace=[])
    make_rollout(collection, task=second, answer="x", reward=0.5, trace=[])
    found = measure_collection(collection)
    assert found.average_of_k == dict.fromkeys((1, 2, 3, 4), pytest.approx(0.5))
    # Of the six pairs of the first task, one is (4, 4), two (4, 5), two (4, none), one (5, none). Of the four triples,
    # two have 4 twice and two have a tie of 4 and 5.
    assert found.majority_at_k == {
        1: pytest.approx(0.25),
        2: pytest.approx((1 + 2 * 0.5 + 2) / 6),
        3: pytest.approx((2 + 2 * 0.5) / 4),
        4: 1.0,
    }
    assert found.no_answer == pytest.approx(1 / 5)


def test_tools_phases_and_lengths_are_told_of_completed_rollouts():
    collection = make_collection()
    work = {"trace": [], "model_time": 2.0, "tool_time": 1.0, "verify_time": 0.5}
    make_rollout(collection, tools={"look": [2, 1, 0.5], "say": [1, 0, 0.1]}, output_tokens=10, **work)
    make_rollout(collection, tools={"look": [1, 0, 0.1]}, output_tokens=1200, reward=0.0, **work)
    make_rollout(
        collection,
        tools={"look": [9, 9, 9]},
        status="failed",
        error_kind="timed_out",
        reward=None,
        stop_reason="",
        **work,
    )
    found = measure_collection(collection)
    look, say = found.tools
    assert (look.name, look.rollouts, look.calls, look.errors) == ("look", 2, 3, 1)
    assert look.mean_duration == pytest.approx(0.2)
    assert (say.name, say.calls) == ("say", 1)
    assert found.latency == {"model": 2.0, "tools": 1.0, "verify": 0.5}
    assert [(bar.low, bar.high, bar.count, bar.mean_reward) for bar in found.by_length] == [
        (10, 10, 1, 1.0),
        (1200, 1200, 1, 0.0),
    ]


def test_an_empty_collection_measures_as_unknown_not_as_zero():
    measured = measure_collection(make_collection())
    assert (measured.rollouts, measured.rewarded, measured.pass_at_k, measured.histogram) == (0, 0, {}, [])
    assert (measured.mean_reward, measured.std, measured.confidence, measured.pass_at_1) == (None, None, None, None)


def test_rewards_beyond_zero_and_one_get_bars_of_their_own():
    collection = make_collection()
    for reward in (-1.0, 0.0, 2.0):
        make_rollout(collection, reward=reward, trace=[])
    bars = measure_collection(collection).histogram
    assert (bars[0]["low"], bars[-1]["high"]) == (-1.0, 2.0)
    assert [bar["count"] for bar in bars] == [1, 0, 0, 1, 0, 0, 0, 0, 0, 1]


def test_the_number_of_queries_does_not_grow_with_the_rollouts(django_assert_num_queries):
    collection = make_collection()
    for number in range(1, 4):
        make_rollout(collection, components={"correct": 1.0}, output_tokens=5 * number, trace=[])
        with django_assert_num_queries(10):
            measure_collection(collection)


def test_the_largest_rewards_that_there_may_be_have_finite_figures():
    collection = make_collection()
    for reward in (-MAX_REWARD, MAX_REWARD, MAX_REWARD, 0.5):
        make_rollout(collection, reward=reward, components={"part": reward}, trace=[])
    found = measure_collection(collection)
    assert (found.min_reward, found.max_reward) == (-MAX_REWARD, MAX_REWARD)
    assert found.std == pytest.approx(0.9574e100, rel=1e-3)
    assert sum(bar["count"] for bar in found.histogram) == 4
    assert json.dumps(dataclasses.asdict(found), allow_nan=False)


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "two\nlines", "é", "a.b[0]", "$"])
def test_a_component_has_its_interval_whatever_it_is_called(name):
    collection = make_collection(dataset=make_dataset([make_row() for _ in range(5)]))
    values = (0.0, 1.0, 0.25, 1.0, 0.5)
    for task, value in zip(collection.version.tasks.order_by("index"), values, strict=True):
        make_rollout(collection=collection, task=task, components={name: value, "plain": value})
    figures = {one.name: one for one in measure_collection(collection).component_figures}
    assert figures[name].confidence is not None
    assert figures[name].confidence == figures["plain"].confidence
