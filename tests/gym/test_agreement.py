"""Agreement against worked examples that were published, and what follows from its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.metrics.agreement import cohen_kappa, correlate, kappa_of_pairs, krippendorff_alpha, percent_agreement

# Krippendorff, K. (2011). Computing Krippendorff's Alpha-Reliability. University of Pennsylvania, Annenberg School for
# Communication, section C/D: four observers, twelve units, values missing. It gives nominal α = 0.743, ordinal
# α = 0.815 and interval α = 0.849.
_ = None
KRIPPENDORFF_2011 = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]


def units_of(observers):
    return [
        {name: value for name, value in zip("ABCD", unit, strict=False) if value is not None}
        for unit in zip(*observers, strict=True)
    ]


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_is_that_of_krippendorffs_own_example(level, alpha):
    assert round(krippendorff_alpha(units_of(KRIPPENDORFF_2011), level), 3) == alpha


def table(counts):
    return [
        (row, column)
        for row, line in enumerate(counts)
        for column, number in enumerate(line)
        for _each in range(number)
    ]


def test_kappa_is_that_of_cohens_own_example():
    # Cohen, J. (1960). A Coefficient of Agreement for Nominal Scales. Educational and Psychological Measurement 20:
    # 37-46, its agreement matrix of two judges and three categories as frequencies of N = 200: the proportion of
    # agreement is .70, by chance .41, and κ = .492.
    pairs = table([[88, 10, 2], [14, 40, 6], [18, 10, 12]])
    assert len(pairs) == 200
    assert round(cohen_kappa(pairs), 3) == 0.492


def test_kappa_is_that_of_a_textbook_example():
    # Sim, J. and Wright, C. C. (2005). The Kappa Statistic in Reliability Studies. Physical Therapy 85(3): 257-268,
    # table 1: two clinicians, 39 patients, κ = .67.
    assert round(cohen_kappa(table([[22, 2], [4, 11]])), 2) == 0.67


def test_what_never_varies_has_no_coefficient():
    assert cohen_kappa([]) is None
    assert cohen_kappa([("a", "a")] * 5) is None
    assert krippendorff_alpha([{"A": 1, "B": 1}] * 5) is None
    assert krippendorff_alpha([{"A": 1}, {"B": 2}]) is None
    assert percent_agreement([{"A": 1}]) is None


def test_percent_counts_every_two_people_of_a_unit():
    assert percent_agreement([{"A": 1, "B": 1, "C": 2}, {"A": 1, "B": 1}]) == 2 / 4


def test_kappa_is_told_of_every_two_people_with_the_units_that_they_share():
    units = [{"A": 1, "B": 1}, {"A": 2, "B": 2, "C": 1}, {"B": 1, "C": 1}]
    assert kappa_of_pairs(units) == {("A", "B"): (1.0, 2), ("A", "C"): (0.0, 1), ("B", "C"): (0.0, 2)}


values = st.lists(st.dictionaries(st.sampled_from("ABCD"), st.integers(0, 4), min_size=1), min_size=1, max_size=12)


@given(values)
def test_alpha_is_at_most_one_and_one_exactly_where_all_agree(units):
    agreeing = all(len(set(unit.values())) == 1 for unit in units)
    for level in ("nominal", "ordinal", "interval"):
        alpha = krippendorff_alpha(units, level)
        if alpha is not None:
            assert (alpha == 1.0) == agreeing
            assert alpha <= 1.0


@given(values)
def test_with_two_values_every_level_says_the_same(units):
    units = [{who: value % 2 for who, value in unit.items()} for unit in units]
    nominal = krippendorff_alpha(units)
    assert krippendorff_alpha(units, "ordinal") == pytest.approx(nominal)
    assert krippendorff_alpha(units, "interval") == pytest.approx(nominal)


def test_correlation_follows_a_line_and_needs_three():
    assert correlate([(0, 1), (1, 3), (2, 5)]) == pytest.approx(1.0)
    assert correlate([(0, 1), (1, 3)]) is None
    assert correlate([(0, 1), (0, 3), (0, 5)]) is None
