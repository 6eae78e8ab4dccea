"""The figures of a collection, counted by the database, against figures worked out by hand."""

import pytest

from apps.rollouts.measuring import measure_collection
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


def test_the_interval_counts_tasks_not_attempts(measured):
    mean, squares = 0.66, (2 - 2 * 0.66) ** 2 + (1.3 - 2 * 0.66) ** 2 + (0 - 0.66) ** 2
    assert measured.confidence == pytest.approx(
        (mean - 1.96 * squares**0.5 / 5, mean + 1.96 * squares**0.5 / 5), rel=1e-3
    )


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
    for _ in range(4):
        make_rollout(collection, trace=[])
    with django_assert_num_queries(10):
        measure_collection(collection)
