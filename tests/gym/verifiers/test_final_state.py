import json

import orjson
import pytest

from apps.gym.verifiers.registry import read_verifier
from tests.gym.verifiers.cases import REFUSED, reward_of
from tests.gym.verifiers.replies import attempt, calls, returns, says

COUNTER, STATE = {"tool": "get_count"}, {"count": 6, "log": ["a", "b"]}


def told(state):
    return [calls("get_count"), returns(state), says("It is done.")]


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


CASES = [
    (COUNTER, STATE, told(STATE), 1.0),
    (COUNTER, STATE, told({**STATE, "more": 1}), 1.0),
    ({**COUNTER, "exact": True}, STATE, told({**STATE, "more": 1}), 0.0),
    ({**COUNTER, "exact": True}, STATE, told(STATE), 1.0),
    (COUNTER, STATE, told({**STATE, "count": 7}), 0.0),
    ({**COUNTER, "score": "fraction"}, STATE, told({**STATE, "count": 7}), 0.5),
    ({**COUNTER, "score": "fraction"}, {"a": {"b": 1, "c": 2}, "d": 3, "e": 4}, told({"a": {"b": 1}, "d": 3}), 0.5),
    (COUNTER, {"log": ["b", "a"]}, told(STATE), 0.0),
    ({**COUNTER, "any_order": True}, {"log": ["b", "a"]}, told(STATE), 1.0),
    ({**COUNTER, "any_order": True}, {"log": ["b", "b"]}, told(STATE), 0.0),
    (COUNTER, STATE, [*told({"count": 1}), calls("get_count", call_id="c2"), returns(STATE, "c2")], 1.0),
    (COUNTER, STATE, [*told(STATE), calls("get_count", call_id="c2"), returns("broken", "c2")], 1.0),
    (COUNTER, STATE, [calls("other"), returns(STATE)], 0.0),
    (COUNTER, STATE, [calls("get_count"), calls("other"), returns(STATE), returns({"count": 1})], 1.0),
    (COUNTER, STATE, [says("nothing was asked")], 0.0),
    ({}, STATE, [says('So: ```json\n{"count": 6, "log": ["a", "b"]}\n```')], 1.0),
    ({}, STATE, [says('{"count": 6, "log": ["a", "b"]}'), says("done")], 0.0),
    ({}, [1, 2], [says("the list is [1, 2]")], 1.0),
    ({}, 6, [says("6")], 1.0),
    ({}, {}, [says("{}")], 1.0),
    ({}, {}, [says("nothing")], 0.0),
    ({}, {"a": None}, [says("{}")], 0.0),
    ({}, STATE, [], 0.0),
    ({}, STATE, [says("[" * 100_000)], 0.0),
    ({}, {"b": 10**23}, [says('{"b": 100000000000000000000000}')], 1.0),
    ({}, {"b": 1}, [says('{"b": 100000000000000000000000}')], 0.0),
    ({"any_order": True}, {"b": [10**23, 1]}, [says('{"b": [1, 100000000000000000000000]}')], 1.0),
    ({}, {"b": 1}, [says('{"b": "\\ud800"}')], 0.0),
    ({"exact": True}, {"b": 1}, [says('{"b": 1, "\\ud800": 2}')], 0.0),
    ({}, {"b": 1}, [says('{"b": 1, "c": ' + "[" * 300 + "]" * 300 + "}")], 1.0),
    ({}, {"b": nested(300)}, [says('{"b": ' + "[" * 300 + "]" * 300 + "}")], 1.0),
    ({}, {"b": nested(300)}, [says('{"b": ' + "[" * 301 + "]" * 301 + "}")], 0.0),
    ({"any_order": True}, {"b": [1]}, [says('{"b": [' + "[" * 2_000 + "]" * 2_000 + "]}")], 0.0),
    ({}, {"b": 1}, [says('{"b": 1e999}')], 0.0),
    ({}, {"b": 1}, [says("[" * 900 + "1," * 49_000)], 0.0),
    ({"expected_field": "gold"}, STATE, told(STATE), REFUSED),
]


EMPTY, ORDER = {"cart": {}}, {"any_order": True}
PAIRS = [
    # An expected object needs an object, even an empty one.
    *((given, EMPTY, state, 0.0) for given in ({}, {"exact": True}) for state in ({}, {"cart": None}, {"cart": []})),
    *(({"score": "fraction"}, EMPTY, state, 0.0) for state in ({}, {"cart": None}, {"cart": "none"})),
    ({}, {"a": {"b": {}}}, {"a": {}}, 0.0),
    ({}, {}, [], 0.0),
    ({}, {"a": {}, "b": 1}, {"b": 1}, 0.0),
    ({"score": "fraction"}, {"a": {}, "b": 1}, {"b": 1}, 0.5),
    ({}, EMPTY, {"cart": {}}, 1.0),
    ({}, EMPTY, {"cart": {"rice": 1}}, 1.0),
    ({"exact": True}, EMPTY, {"cart": {"rice": 1}}, 0.0),
    # Numbers that differ only by their representation are equal.
    ({}, {"sum": 0.3}, {"sum": 0.1 + 0.2}, 1.0),
    ({}, {"sum": 3.3}, {"sum": 1.1 * 3}, 1.0),
    ({}, {"sum": 100}, {"sum": 100.00000000000001}, 1.0),
    ({}, {"sums": [0.3, {"a": 0.7}]}, {"sums": [0.1 + 0.2, {"a": 0.1 * 7}]}, 1.0),
    ({}, {"mass": 1.6e-19}, {"mass": 3.2e-19}, 0.0),
    ({}, {"sum": 0}, {"sum": 1.6e-19}, 0.0),
    ({}, {"sum": 12_345_678.90}, {"sum": 12_345_678.91}, 0.0),
    ({}, {"time": 1_732_800_000.123}, {"time": 1_732_800_000.126}, 0.0),
    ({}, {"id": 9_007_199_254_740_993}, {"id": 9_007_199_254_740_992}, 0.0),
    ({}, {"id": 10**15}, {"id": 10**15 + 1.0}, 0.0),
    ({}, {"id": 1e23}, {"id": 10**23}, 1.0),
    ({}, {"id": 1.5}, {"id": 10**400}, 0.0),
    # Order is ignored at every depth.
    (ORDER, {"x": [[1, 2], [3]]}, {"x": [[3], [2, 1]]}, 1.0),
    (ORDER, {"x": [{"tags": ["a", "b"]}]}, {"x": [{"tags": ["b", "a"]}]}, 1.0),
    (ORDER, {"x": {"y": [[[1, 2]], []]}}, {"x": {"y": [[], [[2, 1]]]}}, 1.0),
    (ORDER, [{"a": [1], "b": [2, 3]}, {"a": 0}], [{"a": 0}, {"b": [3, 2], "a": [1]}], 1.0),
    (ORDER, {"x": [0.3, 0.1]}, {"x": [0.1, 0.1 + 0.2]}, 1.0),
    (ORDER, {"x": [1, True, "1"]}, {"x": ["1", 1.0, True]}, 1.0),
    (ORDER, {"x": [[1, 2], [3]]}, {"x": [[1, 3], [2]]}, 0.0),
    (ORDER, {"x": [[1, 1], [2]]}, {"x": [[1, 2], [2]]}, 0.0),
    (ORDER, {"x": [1, 1]}, {"x": [1, True]}, 0.0),
    ({}, {"x": [[1, 2], [3]]}, {"x": [[2, 1], [3]]}, 0.0),
]
CASES += [(given, expected, [says(json.dumps(state))], reward) for given, expected, state, reward in PAIRS]


@pytest.mark.parametrize(("given", "expected", "made", "reward"), CASES)
def test_final_state(given, expected, made, reward):
    assert reward_of({"type": "final_state", **given}, {"expected_state": expected}, attempt(*made)) == reward


@pytest.mark.parametrize(
    "reply",
    [
        '{"a": 1e999}',
        '{"a": 100000000000000000000000}',
        '{"a": "\\ud800"}',
        '{"\\ud800": 1}',
        '{"a": ' + "[" * 300 + "]" * 300 + "}",
    ],
)
def test_a_state_that_cannot_be_stored_is_left_out_of_the_trace(reply):
    verifier = read_verifier({"type": "final_state", "exact": True})
    reward = verifier.verify({"expected_state": {"b": 1}}, attempt(says(reply)))
    assert reward.value == 0.0
    assert reward.details["state"] == "left out: it cannot be stored"
    assert orjson.dumps([reward.explanation, reward.details])


def test_differences_are_named_by_path():
    verifier = read_verifier({"type": "final_state", "score": "fraction"})
    reward = verifier.verify({"expected_state": {"a": {"b": 1}, "c": 2}}, attempt(says('{"a": {"b": 5}, "c": 2}')))
    assert reward.explanation == "1 of 2 values as expected; not /a/b"
