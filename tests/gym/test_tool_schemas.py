"""Tools as people paste them: read where they can be, and every mistake named by its place."""

import pytest

from apps.gym.tasks.tool_schemas import MOST_TOOLS, ToolsRefused, read_tools

ADD = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "strict": True,
}


def problems(*tools):
    with pytest.raises(ToolsRefused) as refused:
        read_tools(list(tools))
    return refused.value.problems


def test_flat_and_nested_tools_are_read_alike_and_what_was_given_stays_as_it_was():
    nested = {"type": "function", "function": {key: value for key, value in ADD.items() if key != "type"}}
    given = [nested]
    assert read_tools(given) == read_tools([ADD]) == [ADD]
    bare = {"name": "now"}
    assert read_tools([bare]) == [
        {"name": "now", "type": "function", "parameters": {"type": "object", "properties": {}}}
    ]
    assert (given, bare) == ([nested], {"name": "now"})
    assert list(nested["function"]) == ["name", "description", "parameters", "strict"]


def test_no_tools_are_fine():
    assert read_tools([]) == []


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        (5, "/0 must be an object with type, name, description and parameters."),
        ({"type": "web_search"}, "/0/type must be “function”, not 'web_search'. Other types are provider-specific."),
        ({**ADD, "name": "a b"}, "/0/name must be 1 to 64 letters, digits, _ or -, not 'a b'."),
        ({**ADD, "name": None}, "/0/name must be 1 to 64 letters, digits, _ or -, not nothing."),
        ({**ADD, "description": 3}, "/0/description must be a text."),
        ({**ADD, "strict": "yes"}, "/0/strict must be true or false."),
        ({**ADD, "parameters": []}, "/0/parameters must be a JSON Schema, an object, not []."),
        (
            {**ADD, "parameters": {"type": "string"}},
            "/0/parameters/type must be “object”: the arguments of a call are an object.",
        ),
        (
            {**ADD, "parameters": {"type": "object", "properties": {"a": {"type": "strng"}}}},
            "/0/parameters/properties/a/type is 'strng': a type is array, boolean, integer, null, number, object or "
            "string, or a list of these.",
        ),
        (
            {**ADD, "parameters": {"type": "object", "required": "a"}},
            "/0/parameters/required is not a JSON Schema: 'a' is not of type 'array'.",
        ),
        (
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": []}}},
            "/0/function/parameters/properties is not a JSON Schema: [] is not of type 'object'.",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tool, problem):
    assert problems(tool) == [problem]


def test_all_mistakes_come_at_once_and_a_name_stands_once():
    assert problems(ADD, {**ADD, "name": "", "strict": 1}, ADD) == [
        "/1/name must be 1 to 64 letters, digits, _ or -, not ''.",
        "/1/strict must be true or false.",
        "/2/name: there is another tool 'add'.",
    ]


def test_what_would_break_a_request_is_refused_and_not_met_later():
    assert problems(*[ADD] * (MOST_TOOLS + 1)) == [f"There are {MOST_TOOLS + 1} tools: give at most {MOST_TOOLS}."]
    deep = {"type": "object"}
    for _ in range(2_000):
        deep = {"type": "object", "properties": {"a": deep}}
    assert problems({**ADD, "parameters": deep}) == ["/0/parameters is nested too deep."]
    with pytest.raises(ToolsRefused, match="Give a list of tools"):
        read_tools({"name": "add"})
