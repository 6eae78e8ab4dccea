"""What calls cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.wires.pricing import FREE, Prices

PRICES = Prices(input=2.0, output=8.0, cached_input=0.5, cache_write=2.5)
counts = st.integers(0, 10**9)


def test_cached_input_is_priced_by_itself_and_reasoning_is_part_of_the_output():
    usage = {"input_tokens": 1_000_000, "output_tokens": 500_000, "cached_tokens": 400_000, "reasoning_tokens": 100}
    assert PRICES.cost(usage) == pytest.approx(0.6 * 2.0 + 0.4 * 0.5 + 0.5 * 8.0)


def test_cache_writes_are_priced_by_themselves_or_as_other_input():
    usage = {"input_tokens": 1_000_000, "output_tokens": 0, "cached_tokens": 400_000, "cache_write_tokens": 100_000}
    assert PRICES.cost(usage) == pytest.approx(0.5 * 2.0 + 0.4 * 0.5 + 0.1 * 2.5)
    assert Prices(input=2.0).cost(usage) == 2.0
    assert Prices(input=2.0, cache_write=0.0).cost(usage) == pytest.approx(1.8)
    assert PRICES.cost({**usage, "cache_write_tokens": 10**9}) == pytest.approx(0.4 * 0.5 + 0.6 * 2.5)


def test_without_a_price_of_its_own_cached_input_costs_as_any_other():
    usage = {"input_tokens": 1_000_000, "output_tokens": 0, "cached_tokens": 400_000}
    assert Prices(input=2.0).cost(usage) == 2.0
    assert Prices(input=2.0, cached_input=0.0).cost(usage) == pytest.approx(1.2)


def test_an_endpoint_that_claims_more_cached_than_read_is_not_believed():
    assert PRICES.cost({"input_tokens": 10, "cached_tokens": 99}) == pytest.approx(10 * 0.5 / 1e6)
    assert PRICES.cost({"input_tokens": 10, "cached_tokens": -99}) == pytest.approx(10 * 2.0 / 1e6)


def test_missing_usage_and_missing_prices_cost_nothing():
    assert PRICES.cost({}) == 0.0
    assert FREE.cost({"input_tokens": 10**9, "output_tokens": 10**9, "cached_tokens": 1}) == 0.0


usages = st.builds(
    lambda read, cached, stored, said: {
        "input_tokens": read + cached + stored,
        "cached_tokens": cached,
        "cache_write_tokens": stored,
        "output_tokens": said,
    },
    counts,
    counts,
    counts,
    counts,
)


@given(usages, usages)
def test_calls_summed_cost_what_they_cost_one_by_one(one, two):
    both = {name: one[name] + two[name] for name in one}
    assert PRICES.cost(both) == pytest.approx(PRICES.cost(one) + PRICES.cost(two))
