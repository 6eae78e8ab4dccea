import pytest

from apps.dashboard.templatetags.gymweb_format import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0, "<1 ms"),
        (0.000_01, "<1 ms"),
        (0.000_4, "0.4 ms"),
        (0.000_96, "1 ms"),
        (0.85, "850 ms"),
        (0.999_7, "1.0 s"),
        (59.97, "1 min"),
        (185, "3 min 05 s"),
        (7800, "2 h 10 min"),
        (604_800, "7 d"),
        (190_800, "2 d 5 h"),
    ],
)
def test_a_duration_never_rounds_work_to_nothing(seconds, text):
    assert duration(seconds) == text
