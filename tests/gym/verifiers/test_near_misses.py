import pytest

from apps.gym.verifiers.near_misses import NearMiss, make_near_misses
from tests.gym.verifiers.cases import reward_of

ANSWERS = r"""
42
-7
1234
0
100
3.14
-0.5
0.000123
1,000
12.50
\frac{3}{4}
-\frac{1}{2}
\frac{11\sqrt{3}}{7}
2\sqrt{2}
\sqrt[3]{5}
3\pi
\frac{\pi}{6}
1.6\times 10^{-19}
6.02\times 10^{23}
9.11e-31
50\%
5\text{ cm}
12\text{ cm}^2
3\text{ hours}
\$18.50
90^\circ
2^{10}
5!
\binom{10}{3}
\log_2 8
3+4i
x=5
x^2+2x+1
2x-3y+7
\frac{x+1}{x-1}
\frac{GM}{r^2}
E=mc^2
(x-1)(x+2)
\sin(2x)
e^{-x^2}
(1,2)
(3,-4,5)
[0,1)
(-\infty,1)\cup(2,\infty)
\{1,2,3\}
1,2
x<5
1\le x<3
x\ne 3
x\equiv 3 \pmod 7
x=2k, k \in \mathbb{Z}
\{x \mid x>1\}
\begin{pmatrix}1&2\\3&4\end{pmatrix}
\begin{cases} x = 1 \\ y = 2 \end{cases}
1101_2
2024-05-12
10:30
3-1
BADC
\text{even}
\text{(B)}
\frac{dy}{dx}=2x
f'(x)=3x^2
y=2x+1
a_1+a_2
n(n+1)/2
\overline{AB}
\lfloor x \rfloor
|x-2|
\ln(3)
"""

WITHOUT_COPIES = (r"\text{even}", r"\text{(B)}", r"\overline{AB}")
RIGHT_COPIES = {r"\binom{10}{3}": [r"\binom{10}{7}"]}
"""The same value."""


@pytest.mark.parametrize("expected", ANSWERS.strip().splitlines())
def test_an_answer_with_one_change_is_wrong(expected):
    row = {"expected_answer": expected}
    assert reward_of({"type": "math"}, row, f"\\boxed{{{expected}}}") == 1.0
    copies = list(make_near_misses(expected))
    assert copies or expected in WITHOUT_COPIES
    accepted = [copy.answer for copy in copies if reward_of({"type": "math"}, row, f"\\boxed{{{copy.answer}}}") != 0.0]
    assert accepted == RIGHT_COPIES.get(expected, [])


def test_each_kind_of_change_is_made():
    assert {near.kind for near in make_near_misses(r"(AB, -5\text{ cm}) < 3")} >= {"sign", "case", "bracket"}
    assert NearMiss("unit", r"5\text{ m}") in make_near_misses(r"5\text{ cm}")
    assert NearMiss("relation", r"x\le 5") in make_near_misses("x<5")
    assert NearMiss("order", "ACBD") in make_near_misses("ABCD")
    assert NearMiss("digit", "43") in make_near_misses("42")
    assert NearMiss("exponent", r"1.6\times 10^{-18}") in make_near_misses(r"1.6\times 10^{-19}")
    assert NearMiss("exponent", "x^3") in make_near_misses("x^2")


def test_changes_that_keep_an_answer_right_are_not_made():
    assert next(iter(make_near_misses("0"))) == NearMiss("digit", "1")
    assert "9.11E-31" not in {near.answer for near in make_near_misses("9.11e-31")}
    assert "X=5" not in {near.answer for near in make_near_misses("x=5")}
