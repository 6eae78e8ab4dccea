import pytest

from apps.gym.environments.text_to_sql.environment import same_rows
from apps.gym.environments.text_to_sql.query_guard import Table


@pytest.mark.parametrize(
    ("wanted", "given", "same"),
    [
        (0.1 + 0.2, 0.3, True),
        (1234567.1234567891, 1234567.1234567890, True),
        (1e-17, 0.0, True),
        (1.6e-19, 3.2e-19, False),
        (1.6e-19, 1.6e-19 * (1 + 1e-12), True),
        (0.000001, 0.0000012, False),
        (1.6e-9, 3.2e-9, False),
        (12345.678, 12345.679, False),
        (2.5, 2.50000001, False),
        (3.0, 3, True),
    ],
)
def test_numbers_of_rows_are_compared_by_their_digits(wanted, given, same):
    tables = [Table(["n"], [(value,)], cut=False) for value in (wanted, given)]
    assert same_rows(*tables, ordered=False) is same
