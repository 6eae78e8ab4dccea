import asyncio

import pytest

from apps.gym.errors import VerifierError
from apps.gym.verifiers.processes.process_pool import ProcessPool
from apps.gym.verifiers.registry import read_verifier
from apps.gym.verifiers.verification import verify_attempt
from tests.gym.verifiers.cases import REFUSED, reward_of
from tests.gym.verifiers.replies import response

CASES = [
    ({}, "32", r"so \boxed{32}", 1.0),
    ({}, r"\frac12", r"so \boxed{0.5}", 1.0),
    ({}, r"\(\frac{333}{1997}\)", r"\boxed{83/499}", 0.0),
    ({}, "x^2+2x+1", r"\boxed{(x+1)^2}", 1.0),
    ({}, "x^2+2x+1", r"\boxed{(x-1)^2}", 0.0),
    ({}, r"2\sqrt{2}", r"It is $\sqrt{8}$.", 1.0),
    ({}, r"\{1,2\}", r"\boxed{\{2,1\}}", 1.0),
    ({}, "(1,2]", r"\boxed{1<x\le 2}", 0.0),
    ({"relations_as_sets": True}, "(1,2]", r"\boxed{1<x\le 2}", 1.0),
    ({}, "x=3", r"\boxed{3}", 1.0),
    ({}, r"50\%", r"\boxed{1/2}", 1.0),
    ({}, r"\pi", r"\boxed{3.14159}", 0.0),
    ({"decimals": 2}, r"\pi", r"\boxed{3.14159}", 1.0),
    ({}, r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{\begin{bmatrix}1&2\\3&4\end{bmatrix}}", 1.0),
    ({}, r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{7}", 0.0),
    ({}, "32", r"\boxed{31=32}", 0.0),
    ({}, "32", r"\boxed{2^5=32}", 1.0),
    ({}, "5", r"\boxed{f(2)=31=5}", 0.0),
    ({}, "3", r"\boxed{\alpha=3}", 1.0),
    ({}, "0.5", r"\boxed{\frac{2}{4}=\frac12=0.5}", 1.0),
    ({}, r"6.02\times 10^{23}", r"\boxed{6.02e23}", 1.0),
    ({}, "6.02e23", r"\boxed{6.02\times10^{23}}", 1.0),
    ({}, "0.001", r"\boxed{1e-3}", 1.0),
    ({}, "0.001", r"\boxed{1e-2}", 0.0),
    ({}, "12", "Therefore the answer is 12.", 1.0),
    ({}, "12", r"the area is $3\pi$", 0.0),
    ({"extract": "pattern", "pattern": "x = (.*)"}, "1/4", "x = 0.25\ny = 3", 1.0),
    ({}, "12", "", 0.0),
    ({}, "12", r"\boxed{}", 0.0),
    ({}, "12", r"\boxed{\frac{1}{", 0.0),
    ({}, "12", r"\frac{" * 3_000, 0.0),
    ({}, "12", r"\boxed{" + "1+" * 20_000 + "1}", 0.0),
    ({}, "12", r"\boxed{\text{__import__('os').system('true')}}", 0.0),
    ({}, "", r"\boxed{12}", REFUSED),
    ({}, None, r"\boxed{12}", REFUSED),
]

ENDLESS = r"\boxed{9^{9^{9^{9}}}}"


@pytest.mark.parametrize(("given", "expected", "reply", "reward"), CASES)
def test_mathematics(given, expected, reply, reward):
    assert reward_of({"type": "math", **given}, {"expected_answer": expected}, reply) == reward


def test_an_expression_that_takes_for_ever_is_stopped_and_gives_no_reward():
    verifier = read_verifier({"type": "math", "time_limit": 3})

    async def verify(text):
        return await verify_attempt(verifier, {"expected_answer": "7"}, response(text))

    with pytest.raises(VerifierError, match="Symbolic mathematics: stopped after 3 s without a result") as stopped:
        asyncio.run(verify(ENDLESS))
    assert (stopped.value.kind, stopped.value.transient) == ("verifier_timeout", False)
    assert asyncio.run(verify(r"\boxed{7}")).value == 1.0


def test_an_answer_that_only_makes_the_verifier_slow_may_count_as_wrong():
    verifier = read_verifier({"type": "math", "time_limit": 1, "too_slow": "wrong"})
    found = asyncio.run(verify_attempt(verifier, {"expected_answer": "7"}, response(ENDLESS)))
    assert (found.value, found.components) == (0.0, {"math_equality": 0.0})
    assert found.explanation == "Symbolic mathematics: stopped after 1 s without a result; counted as wrong"


@pytest.mark.parametrize(
    ("given", "row", "reply"),
    [
        ({"type": "math"}, {"expected_answer": "2"}, r"\boxed{\frac{4}{2}}"),
        ({"type": "json_schema"}, {"schema_str": {"type": "object"}}, "{}"),
        (
            {"type": "instructions"},
            {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "en"}]},
            "This is a sentence in English, and nothing else.",
        ),
    ],
)
def test_the_first_verdict_of_a_process_has_its_whole_time(given, row, reply):
    pool = ProcessPool(1)
    verifier = read_verifier(given)
    try:
        assert asyncio.run(pool.verify(verifier, row, response(reply), seconds=0.3)).value == 1.0
    finally:
        pool.close()


def test_loading_the_library_is_no_part_of_the_time_limit():
    pool = ProcessPool(1)
    verifier = read_verifier({"type": "math", "time_limit": 0.3})

    async def verify(text):
        return await pool.verify(verifier, {"expected_answer": "7"}, response(text), seconds=verifier.time_limit)

    try:
        assert asyncio.run(verify(r"\boxed{\frac{14}{2}}")).value == 1.0
        with pytest.raises(VerifierError, match="stopped after"):
            asyncio.run(verify(ENDLESS))
        # The process that replaces the stopped one loads the library again.
        assert asyncio.run(verify(r"\boxed{\frac{14}{2}}")).value == 1.0
    finally:
        pool.close()
