import pytest

from apps.dashboard.templatetags.gymweb_format import fixed, reward_chip, size, usd


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "–"),
        (0, "$0.00"),
        (0.0, "$0.00"),
        (1234.5, "$1,234.50"),
        (0.01, "$0.01"),
        (0.0099, "$0.0099"),
        (0.00252, "$0.0025"),
        (2.52e-05, "$0.000025"),
        (1e-06, "$0.000001"),
        (4e-07, "under $0.000001"),
    ],
)
def test_an_amount_of_usd_has_two_digits_that_say_something_and_no_exponent(amount, shown):
    assert usd(amount) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (-0.0004, "0.000"), (-0.25, "−0.250"), (1234.5, "1,234.500")]
)
def test_a_fixed_number_has_a_minus_sign_and_no_negative_zero(value, shown):
    assert fixed(value) == shown


@pytest.mark.parametrize(
    ("reward", "shown"),
    [
        (0.5, "0.50"), (1.0, "1.00"), (-0.0, "0.00"), (0.996, "0.996"), (0.99999, "0.99999"), (1.004, "1.004"),
        (0.004, "0.004"), (1e-9, "1e-09"), (-0.001, "-0.001"), (-1e90, "-1e+90"), (123456.5, "123456.50"),
        (1234567.0, "1.23e+06"),
    ],
)  # fmt: skip
def test_a_reward_is_short_and_never_rounded_to_one_that_means_something_else(reward, shown):
    assert reward_chip(reward).endswith(f"</span> {shown}</span>")


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1023, "1.0 KB"),
        (1010.2 * 1024, "1.0 MB"),
        (5.25 * 1024**3, "5.2 GB"),
        (5000 * 1024**4, "5000.0 TB"),
    ],
)
def test_a_size_has_at_most_three_digits_before_the_point(count, shown):
    assert size(count) == shown
