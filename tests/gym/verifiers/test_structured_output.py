import json

import pytest

from apps.gym.verifiers.registry import find_problems, read_verifier
from apps.gym.verifiers.structured.structured_output import find_endless
from tests.deadlines import cpu_deadline
from tests.gym.verifiers.cases import REFUSED, reward_of
from tests.gym.verifiers.replies import attempt, calls, response, says

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}
SEVERAL = {"type": "array", "uniqueItems": True}
GIVEN = {"schema": PERSON}
ADA, ADA_30 = '{"name": "Ada"}', '{"name": "Ada", "age": 30}'
TOOL = {**GIVEN, "source": "tool_call"}

CASES = [
    (GIVEN, {}, ADA_30, 1.0),
    (GIVEN, {}, f"Here:\n```json\n{ADA}\n```\nDone.", 1.0),
    (GIVEN, {}, f"Here it is: {ADA} and that is all", 1.0),
    (GIVEN, {}, '{"name": 3}', 0.0),
    (GIVEN, {}, '{"name": "Ada", "age": -1}', 0.0),
    (GIVEN, {}, '{"age": 30}', 0.0),
    ({**GIVEN, "closed": True}, {}, ADA, 0.0),
    ({**GIVEN, "closed": True}, {}, ADA_30, 1.0),
    ({**GIVEN, "closed": True}, {}, '{"name": "Ada", "age": 3, "more": 1}', 0.0),
    ({**GIVEN, "strict": True}, {}, ADA, 1.0),
    ({**GIVEN, "strict": True}, {}, f"```json\n{ADA}\n```", 0.0),
    (GIVEN, {}, "no JSON", 0.0),
    (GIVEN, {}, '{"name": "Ada"', 0.0),
    (GIVEN, {}, '{"name": NaN}', 0.0),
    ({}, {"schema_str": json.dumps(PERSON)}, ADA, 1.0),
    ({"schema_field": "form"}, {"form": PERSON}, ADA, 1.0),
    ({}, {}, ADA, REFUSED),
    ({}, {"schema_str": "{"}, ADA, REFUSED),
    ({}, {"schema_str": {"type": "thing"}}, ADA, REFUSED),
    ({}, {"schema_str": {"$ref": "https://example.org/schema.json"}}, ADA, REFUSED),
    (TOOL, {}, attempt(calls("save", {"name": "Ada"})), 1.0),
    (TOOL, {}, attempt(calls("save", {"name": 3})), 0.0),
    (TOOL, {}, attempt(calls("save", "no JSON")), 0.0),
    (TOOL, {}, attempt(says(ADA)), 0.0),
    (TOOL, {}, attempt(calls("save", {"name": "Ada"}), calls("save", {"name": "Ada"})), 0.0),
    ({**TOOL, "tool": "send"}, {}, attempt(calls("save", {"name": "Ada"})), 0.0),
    ({**TOOL, "argument": "person"}, {}, attempt(calls("save", {"person": {"name": "Ada"}})), 1.0),
    ({**TOOL, "argument": "person"}, {}, attempt(calls("save", {"name": "Ada"})), 0.0),
    (
        GIVEN,
        {"response_mode": "tool_call", "tool_name": "save", "tool_payload_key": "person"},
        attempt(calls("save", {"person": {"name": "Ada"}})),
        1.0,
    ),
    ({"schema": SEVERAL}, {}, json.dumps([{"a": index} for index in range(3_000)]), 1.0),
    ({"schema": SEVERAL}, {}, json.dumps([{"a": index} for index in range(3_000)] + [{"a": 7.0}]), 0.0),
    ({"schema": SEVERAL}, {}, "[1, true, 0, false, null]", 1.0),
    ({"schema": SEVERAL}, {}, "[1, 1.0]", 0.0),
    ({"schema": SEVERAL}, {}, '[{"a": 1, "b": 2}, {"b": 2, "a": 1}]', 0.0),
    ({}, {"schema_str": {"$ref": "#"}}, ADA, REFUSED),
    (GIVEN, {"response_mode": "smoke"}, ADA, REFUSED),
    (GIVEN, {}, "{" * 200_000, 0.0),
    (GIVEN, {}, "", 0.0),
]


NEEDS_B = {"dependencies": {"a": ["b"]}}
DRAFTS = [
    ("draft-04/schema#", {"minimum": 3, "exclusiveMinimum": True}, 3, 0.0),
    ("draft-04/schema#", {"minimum": 3, "exclusiveMinimum": True}, 4, 1.0),
    ("draft-04/schema#", {"type": "integer"}, 1.0, 0.0),
    ("draft-04/schema#", {"exclusiveMinimum": 3}, 4, REFUSED),
    ("draft-04/schema#", {"uniqueItems": True}, [1, 1], 0.0),
    ("draft-06/schema#", {"type": "integer"}, 1.0, 1.0),
    ("draft-06/schema#", {"if": {"type": "string"}, "then": False}, "a", 1.0),
    ("draft-07/schema#", {"if": {"type": "string"}, "then": False}, "a", 0.0),
    ("draft-07/schema#", NEEDS_B, {"a": 1}, 0.0),
    ("draft-07/schema", NEEDS_B, {"a": 1}, 0.0),
    ("draft-07/schema#", NEEDS_B, {"a": 1, "b": 1}, 1.0),
    ("draft-07/schema#", {"dependencies": {"a": {"required": ["b"]}}}, {"a": 1}, 0.0),
    ("draft-07/schema#", {"items": [{"type": "string"}], "additionalItems": False}, ["a", 1], 0.0),
    ("draft-07/schema#", {"items": [{"type": "string"}], "additionalItems": False}, ["a"], 1.0),
    (
        "draft-07/schema#",
        {"$ref": "#/definitions/a", "type": "string", "definitions": {"a": {"type": "integer"}}},
        1,
        1.0,
    ),
    ("draft-07/schema#", {"dependencies": {"a": {"$ref": "#"}}}, {"a": 1}, REFUSED),
    ("draft/2019-09/schema", {"items": [{"type": "string"}]}, [1], 0.0),
    ("draft/2019-09/schema", {"items": {"$recursiveRef": "#"}, "type": "array"}, [[], [1]], 0.0),
    ("draft/2019-09/schema", {"$recursiveRef": "#"}, 1, REFUSED),
    ("draft/2020-12/schema", {"prefixItems": [{"type": "string"}]}, [1], 0.0),
    ("draft/2020-12/schema", NEEDS_B, {"a": 1}, 1.0),
    ("draft-03/schema#", {"type": "string"}, "a", REFUSED),
    ("draft-08/schema#", {"type": "string"}, "a", REFUSED),
]
CASES += [
    ({}, {"schema_str": {"$schema": f"{scheme}://json-schema.org/{draft}", **schema}}, json.dumps(given), reward)
    for draft, schema, given, reward in DRAFTS
    for scheme in ("http", "https")
]


@pytest.mark.parametrize("declared", ["https://example.org/mine", "draft-07", 7, None])
def test_an_unknown_draft_is_refused_with_its_place_and_the_known_ones(declared):
    [(pointer, problem)] = find_problems({"type": "json_schema", "schema": {"$schema": declared}})
    assert pointer == "/schema/$schema"
    assert repr(declared) in problem
    assert "http://json-schema.org/draft-07/schema" in problem


@pytest.mark.parametrize(("given", "row", "reply", "reward"), CASES)
def test_structured_output(given, row, reply, reward):
    assert reward_of({"type": "json_schema", **given}, row, reply) == reward


def test_violations_are_named_by_pointer():
    reward = read_verifier({"type": "json_schema", **GIVEN}).verify({}, response('{"name": 3, "age": -1}'))
    assert reward.components == {"json": 1.0, "schema": 0.0}
    assert sorted(reward.explanation.splitlines()) == [
        "/age: -1 is less than the minimum of 0",
        "/name: 3 is not of type 'string'",
    ]


def test_a_schema_that_is_none_is_refused_with_its_place():
    given = {"type": "json_schema", "schema": {"properties": {"a": {"type": "thing"}}}}
    [(pointer, problem)] = find_problems(given)
    assert pointer == "/schema/properties/a/type"
    assert problem.startswith("is not valid JSON Schema: 'thing' is not valid")


def test_nothing_is_fetched_for_a_schema():
    given = {"type": "json_schema", "schema": {"allOf": [{"$ref": "http://127.0.0.1:9/x"}]}}
    assert list(find_problems(given)) == [
        ("/schema", "refers to 'http://127.0.0.1:9/x': only references within the schema, #/…, are followed")
    ]


@pytest.mark.parametrize(
    ("schema", "reference"),
    [
        ({"$ref": "#"}, "#"),
        ({"allOf": [{"$ref": "#"}]}, "#"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}},
            "#/$defs/a",
        ),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}}, "#/properties/a"),
        ({"properties": {"a~/b": {"if": {"$ref": "#/properties/a~0~1b"}}}}, "#/properties/a~0~1b"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/anyOf/1"}]}, "#/anyOf/1"),
    ],
)
def test_a_schema_that_refers_to_itself_without_an_end_is_refused(schema, reference):
    assert list(find_problems({"type": "json_schema", "schema": schema})) == [
        ("/schema", f"refers to itself endlessly through {reference!r}, so no value can match it")
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]},
        {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "string"}}},
        {"properties": {"$ref": {"type": "string"}}, "const": {"a": 1}},
    ],
)
def test_a_schema_may_refer_to_itself_for_a_part_of_the_value(schema):
    assert list(find_problems({"type": "json_schema", "schema": schema})) == []


def test_a_long_list_of_objects_is_quickly_known_to_hold_each_once():
    verifier = read_verifier({"type": "json_schema", "schema": SEVERAL})
    reply = response(json.dumps([{"a": index, "b": "x"} for index in range(50_000)]))
    with cpu_deadline():
        assert verifier.verify({}, reply).value == 1.0


def test_a_deep_maze_of_references_is_walked_once():
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}, {"$ref": f"#/$defs/l{n + 1}"}]} for n in range(500)}
    assert find_endless({"$defs": {**levels, "l500": {}}, "$ref": "#/$defs/l0"}) == ""
    assert find_endless({"$defs": {**levels, "l500": {"$ref": "#/$defs/l0"}}, "$ref": "#/$defs/l0"}) == "#/$defs/l0"
