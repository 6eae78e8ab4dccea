import pytest

from apps.gym.verifiers.registry import read_verifier
from tests.gym.verifiers.cases import REFUSED, reward_of
from tests.gym.verifiers.replies import attempt, calls, says

BERN, ROME = ({"name": "weather", "arguments": {"city": city}} for city in ("Bern", "Rome"))
TIME = {"name": "time", "arguments": {}}
BERN_CALL, ROME_CALL = (calls("weather", {"city": city}) for city in ("Bern", "Rome"))
TIME_CALL = calls("time")
FRACTION, MORE = {"score": "fraction"}, {"allow_more": True}

CASES = [
    ({}, [BERN, ROME], [BERN_CALL, ROME_CALL], 1.0),
    ({}, [BERN, ROME], [ROME_CALL, says("and"), BERN_CALL], 1.0),
    ({}, [BERN, ROME], [BERN_CALL], 0.0),
    ({}, [BERN, ROME], [BERN_CALL, BERN_CALL], 0.0),
    ({}, [BERN, BERN], [BERN_CALL, BERN_CALL], 1.0),
    ({}, [BERN], [BERN_CALL, TIME_CALL], 0.0),
    (MORE, [BERN], [TIME_CALL, BERN_CALL], 1.0),
    (FRACTION, [BERN, ROME], [BERN_CALL], 0.5),
    (FRACTION, [BERN], [BERN_CALL, ROME_CALL, TIME_CALL], 1 / 3),
    ({**FRACTION, **MORE}, [BERN, ROME], [TIME_CALL, ROME_CALL, TIME_CALL], 0.5),
    ({"order": "exact"}, [BERN, ROME], [BERN_CALL, ROME_CALL], 1.0),
    ({"order": "exact"}, [BERN, ROME], [ROME_CALL, BERN_CALL], 0.0),
    ({"order": "in_order", **MORE}, [BERN, ROME], [BERN_CALL, TIME_CALL, ROME_CALL], 1.0),
    ({"order": "in_order", **MORE}, [BERN, ROME], [ROME_CALL, BERN_CALL], 0.0),
    ({"order": "in_order", **FRACTION}, [BERN, ROME, TIME], [ROME_CALL, BERN_CALL, TIME_CALL], 2 / 3),
    ({}, [BERN], [calls("weather", {"city": "Bern", "unit": "C"})], 1.0),
    ({"arguments": "exact"}, [BERN], [calls("weather", {"city": "Bern", "unit": "C"})], 0.0),
    ({"arguments": "names"}, [BERN], [calls("weather", "no JSON")], 1.0),
    ({}, [BERN], [calls("weather", "no JSON")], 0.0),
    ({}, [BERN], [calls("weather", {"city": " bern"})], 0.0),
    ({"relaxed": True}, [BERN], [calls("weather", {"city": " bern"})], 1.0),
    ({}, [{"name": "f", "arguments": {"n": 3}}], [calls("f", {"n": 3.0})], 1.0),
    ({}, [{"name": "f", "arguments": {"n": 1}}], [calls("f", {"n": True})], 0.0),
    ({}, [{"name": "f", "arguments": {"n": 3}}], [calls("f", {"n": "3"})], 0.0),
    ({"relaxed": True}, [{"name": "f", "arguments": {"n": 3}}], [calls("f", {"n": "3"})], 1.0),
    ({}, [{"name": "weather", "arguments": '{"city": "Bern"}'}], [BERN_CALL], 1.0),
    ({}, [TIME], [calls("time", "")], 1.0),
    ({}, [], [], 1.0),
    ({}, [], [BERN_CALL], 0.0),
    ({}, [BERN], [], 0.0),
    ({}, None, [BERN_CALL], REFUSED),
    ({}, ["weather"], [BERN_CALL], REFUSED),
    ({}, [{"name": "weather", "arguments": "no JSON"}], [BERN_CALL], REFUSED),
    ({}, [BERN], [calls("weather", "[" * 5_000)], 0.0),
    ({}, [BERN], [calls("weather", {"city": "x" * 500_000})], 0.0),
]


PAIRS = [
    # Expected and made value, with the rewards of a strict and a lenient comparison.
    ("1234567890123456789", "1234567890123456788", 0.0, 0.0),
    (1234567890123456789, "1234567890123456788", 0.0, 0.0),
    (1234567890123456789, 1234567890123456788, 0.0, 0.0),
    (1234567890123456789, "1234567890123456789", 0.0, 1.0),
    ("01234", "1234", 0.0, 0.0),
    ("01234", 1234, 0.0, 0.0),
    (7, "007", 0.0, 0.0),
    ("+41791234567", "41791234567", 0.0, 0.0),
    ("1e3", "1000", 0.0, 0.0),
    ("1_000", 1000, 0.0, 0.0),
    ("3.10", "3.1", 0.0, 0.0),
    ("1e400", "inf", 0.0, 0.0),
    ("٣", 3, 0.0, 0.0),
    (True, "1", 0.0, 0.0),
    ("9" * 5_000, "9" * 4_999 + "8", 0.0, 0.0),
    ("3.0", "3", 0.0, 1.0),
    (2.5, "2.50", 0.0, 1.0),
    (100_000, "1e5", 0.0, 1.0),
    (0.5, " 0.5 ", 0.0, 1.0),
    (None, "null", 0.0, 1.0),
    (True, "True", 0.0, 1.0),
    ({"a": ["X", 3]}, {"a": ["x", "3"]}, 0.0, 1.0),
    (0.3, "0.30000000000000004", 0.0, 1.0),
    (0.3, 0.30000000000000004, 1.0, 1.0),
    ([{"a": 0.7}], [{"a": 0.7000000000000001}], 1.0, 1.0),
    (1.1, 1.1000000000000003, 1.0, 1.0),
    (0.3, 0.3001, 0.0, 0.0),
    (1e-19, 2e-19, 0.0, 0.0),
    (10**15, 10**15 + 1, 0.0, 0.0),
]
CASES += [
    ({"relaxed": relaxed}, [{"name": "f", "arguments": {"x": expected}}], [calls("f", {"x": given})], reward)
    for expected, given, *rewards in PAIRS
    for relaxed, reward in zip((False, True), rewards, strict=True)
]


def call_f(*given):
    return [{"name": "f", "arguments": arguments} for arguments in given]


Q, QN, N, QM = {"q": 1}, {"q": 1, "n": 2}, {"n": 2}, {"q": 1, "m": 3}
MATCHED = [
    # Expected and made arguments, with the number of pairs.
    ([Q, QN], [QN, Q], 2),
    ([Q, QN], [Q, QN], 2),
    ([N, Q], [QN, Q], 2),
    ([Q, N, QN], [QN, QN, Q], 3),
    ([Q, N, QM], [QN, QM, N], 3),
    ([{}, Q, QN], [QN, Q, N], 3),
    ([Q, Q, QN], [QN, Q, N], 2),
    ([QN, QN], [QN, Q], 1),
    ([Q] * 150 + [QN] * 150, [QN] * 150 + [Q] * 150, 300),
    ([Q] * 100 + [N] * 100, [QN] * 200, 200),
]
CASES += [
    (FRACTION, call_f(*expected), [calls("f", arguments) for arguments in made], count / len(made))
    for expected, made, count in MATCHED
]


@pytest.mark.parametrize(("given", "expected", "made", "reward"), CASES)
def test_tool_calls(given, expected, made, reward):
    assert reward_of({"type": "tool_calls", **given}, {"expected_answers": expected}, attempt(*made)) == reward


def test_the_names_alone_are_a_component():
    verifier = read_verifier({"type": "tool_calls"})
    reward = verifier.verify({"expected_answers": [BERN]}, attempt(ROME_CALL))
    assert reward.components == {"tool_calls": 0.0, "tool_names": 1.0}
    assert reward.explanation == "0 of 1 expected calls, 1 made: weather(city='Rome'); expected weather(city='Bern')"


LAST = {"tool": "submit", "argument": "values"}
ARGUMENT = [
    (LAST, [1, 2], [calls("submit", {"values": [1, 2]})], 1.0),
    (LAST, [1, 2], [calls("submit", {"values": [2, 1]})], 0.0),
    (LAST, [1, 2], [calls("submit", {"values": [1, 2]}), calls("submit", {"values": []})], 0.0),
    ({**LAST, "which": "first"}, [1, 2], [calls("submit", {"values": [1, 2]}), calls("submit", {})], 1.0),
    ({**LAST, "which": "any"}, [1], [calls("submit", {"values": 3}), calls("submit", {"values": [1]})], 1.0),
    (LAST, [1, 2], [calls("note", {"values": [1, 2]})], 0.0),
    (LAST, [], [], 1.0),
    (LAST, [1], [], 0.0),
    (LAST, 3, [calls("submit", {"values": 3.0})], 1.0),
    (LAST, "a", [calls("submit", {"values": "A"})], 0.0),
    (LAST, {"a": [1]}, [calls("submit", {"values": {"a": [1]}})], 1.0),
    (LAST, [1], [calls("submit", "no JSON")], 0.0),
    (LAST, [1], [calls("submit", "{" * 9_000)], 0.0),
    ({**LAST, "expected_field": "gold"}, [1], [calls("submit", {"values": [1]})], REFUSED),
    (LAST, None, [calls("submit", {"values": None})], 1.0),
    (LAST, None, [calls("submit", {})], 0.0),
    (LAST, None, [calls("submit", "no JSON")], 0.0),
    (LAST, None, [], 0.0),
]


@pytest.mark.parametrize(("given", "expected", "made", "reward"), ARGUMENT)
def test_call_argument(given, expected, made, reward):
    assert reward_of({"type": "call_argument", **given}, {"expected_answer": expected}, attempt(*made)) == reward


def test_how_much_of_a_list_is_there_is_a_component():
    verifier = read_verifier({"type": "call_argument", **LAST})
    reward = verifier.verify({"expected_answer": [1, 2, 2, 4]}, attempt(calls("submit", {"values": [2, 4, 2, 9]})))
    assert reward.components == {"call_argument": 0.0, "overlap": 0.75}


TOOLS = [{"name": "weather", "parameters": {"required": ["city"]}}]
FORM = [
    ({}, [BERN_CALL], 3.0),
    ({}, [BERN_CALL, says("I asked.")], 2.0),
    ({}, [BERN_CALL, ROME_CALL], 2.0),
    ({}, [ROME_CALL], 2.0),
    ({}, [calls("weather")], 1.0),
    ({}, [calls("weather", "no JSON")], 1.0),
    ({}, [says("It rains.")], 0.0),
    ({}, [], 0.0),
    ({}, [calls("time")], 1.0),
    ({"format": 0}, [BERN_CALL, says("I asked.")], 2.0),
    ({"correctness": 2.5, "schema_valid": 0, "format": 0}, [BERN_CALL], 2.5),
    ({"format": -1}, [BERN_CALL], 1.0),
    ({"expected_field": "gold"}, [BERN_CALL], REFUSED),
    ({}, [calls("weather", "[" * 9_000)], 1.0),
]


@pytest.mark.parametrize(("given", "made", "reward"), FORM)
def test_tool_call_form(given, made, reward):
    row = {"responses_create_params": {"input": "?", "tools": TOOLS}, "expected_call": BERN}
    assert reward_of({"type": "tool_call_form", **given}, row, attempt(*made)) == reward


@pytest.mark.parametrize("expected", [None, [], [BERN, ROME], "weather"])
def test_a_row_that_does_not_expect_one_call_is_refused(expected):
    assert reward_of({"type": "tool_call_form"}, {"expected_call": expected}, attempt(BERN_CALL)) == REFUSED
