"""Parameters: what they may be, and what is said of those that are wrong."""

import inspect

import pytest
from jsonschema import Draft202012Validator

from apps.gym.verifiers.parameters_reader import VerifierMisconfigured, parameters_schema
from apps.gym.verifiers.registry import VERIFIERS, asks_judge, find_problems, read_verifier

NUMERIC = "expected, expected_field, extract, pattern, time_limit, too_slow, absolute_tolerance, relative_tolerance"


@pytest.mark.parametrize("kind", VERIFIERS)
def test_every_verifier_has_a_schema_that_is_one_and_says_what_each_parameter_is_called(kind):
    schema = parameters_schema(VERIFIERS[kind])
    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["type"] == {"const": kind}
    untitled = [name for name, one in schema["properties"].items() if "title" not in one]
    assert untitled == ["type"]
    assert "null" not in str(schema)


@pytest.mark.parametrize("kind", VERIFIERS)
def test_every_verifier_states_its_range_and_its_components(kind):
    told = inspect.getdoc(VERIFIERS[kind])
    assert "Range: " in told
    assert "Component" in told


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({"type": "exact_match"}, []),
        ({"type": "numeric", "absolute_tolerance": -1}, [("/absolute_tolerance", "is -1: give a number of 0 or more")]),
        (
            {"type": "numeric", "tolerance": 1},
            [("/tolerance", f"did you mean relative_tolerance? parameters are {NUMERIC}")],
        ),
        ({"type": "exact_match", "expected": True}, [("/expected", "is true: give a text or a number")]),
        (
            {"type": "exact_match", "extract": "guess"},
            [("/extract", 'is "guess": give one of boxed, final_answer, full_response, last_line, pattern')],
        ),
        ({"type": "contains", "wanted": "x"}, [("/wanted", 'is "x": give a list of at most 500')]),
        ({"type": "contains", "wanted": [" "]}, [("/wanted/0", "is blank")]),
        ({"type": "regex"}, [("/wanted", "`forbidden` are empty")]),
        ({"type": "regex", "wanted": ["a"], "time_limit": 0}, [("/time_limit", "is 0: give a number from 0.1 to 600")]),
        ({"type": "hybrid"}, [("/components", "is missing: this verifier needs it")]),
        ({"type": "hybrid", "components": []}, [("/components", "is []: give a list of at least 1 and at most 20")]),
        ([], [("", 'must be an object like {"type": "exact_match"}, not list')]),
        ({}, [("/type", f"is missing: give one of {', '.join(VERIFIERS)}")]),
        ({"type": "x"}, [("/type", f"is 'x': give one of {', '.join(VERIFIERS)}")]),
        ({"type": ["x"]}, [("/type", f"is \"['x']\": give one of {', '.join(VERIFIERS)}")]),
        ({"type": "contains", "forbidden": ["x" * 300_000]}, [("", "has more than 200,000 bytes of parameters")]),
    ],
)
def test_errors_name_place_and_valid_values(given, problems):
    found = list(find_problems(given))
    assert [place for place, _ in found] == [place for place, _ in problems]
    assert [(told, part) for (_, told), (_, part) in zip(found, problems, strict=True) if part not in told] == []


def test_the_parts_of_a_hybrid_are_looked_at_too():
    parts = [
        {"name": "a", "verifier": {"type": "numeric", "expected": "many"}},
        {"name": "a", "verifier": {"type": "exact_match"}},
        {"name": "b", "verifier": {"type": "hybrid", "components": []}},
    ]
    found = dict(find_problems({"type": "hybrid", "components": parts}))
    assert list(found) == ["/components/0/verifier/expected", "/components/1/name", "/components/2/verifier/type"]
    number, repeated, nested = found.values()
    assert ("not a number" in number, "repeated name" in repeated, "nested hybrid" in nested) == (True, True, True)


def test_reading_says_everything_at_once():
    with pytest.raises(VerifierMisconfigured) as wrong:
        read_verifier({"type": "exact_match", "extract": "pattern", "pattern": ""})
    assert str(wrong.value).startswith("/pattern is missing")


def test_a_judge_is_found_at_any_depth():
    judge = {"type": "llm_judge"}
    assert asks_judge(judge)
    assert asks_judge({"type": "hybrid", "components": [{"name": "a", "verifier": judge}]})
    assert not asks_judge({"type": "hybrid", "components": [{"name": "a", "verifier": {"type": "exact_match"}}, 3]})
    assert not asks_judge({"type": "hybrid", "components": 3})
    assert not asks_judge(None)
