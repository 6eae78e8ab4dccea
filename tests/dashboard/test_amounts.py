import pytest

from apps.dashboard.templatetags.gymweb_format import usd


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
