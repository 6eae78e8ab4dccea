"""Tools as people paste them: read where they can be, and every mistake named by its place."""

import re

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


def test_flat_and_nested_tools_are_equal_and_input_is_unchanged():
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
        (5, r"/0 must be an object"),
        ({"type": "web_search"}, r"/0/type .*“function”, not 'web_search'"),
        ({**ADD, "name": "a b"}, r"/0/name .*1 to 64 .*'a b'"),
        ({**ADD, "name": None}, r"/0/name .*not nothing"),
        ({**ADD, "description": 3}, r"/0/description .*text"),
        ({**ADD, "strict": "yes"}, r"/0/strict .*true or false"),
        ({**ADD, "parameters": []}, r"/0/parameters .*object, not \[\]"),
        ({**ADD, "parameters": {"type": "string"}}, r"/0/parameters/type must be “object”"),
        (
            {**ADD, "parameters": {"type": "object", "properties": {"a": {"type": "strng"}}}},
            r"/0/parameters/properties/a/type is 'strng': .*array, boolean, integer, null, number, object or string",
        ),
        ({**ADD, "parameters": {"type": "object", "required": "a"}}, r"/0/parameters/required .*'a' is not of type"),
        (
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": []}}},
            r"/0/function/parameters/properties .*\[\] is not of type",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tool, problem):
    [found] = problems(tool)
    assert re.match(problem, found)


def test_all_mistakes_are_listed_with_each_name_once():
    empty, strict, repeated = problems(ADD, {**ADD, "name": "", "strict": 1}, ADD)
    assert (empty.startswith("/1/name "), strict.startswith("/1/strict ")) == (True, True)
    assert (repeated.startswith("/2/name: "), "another tool 'add'" in repeated) == (True, True)


def test_what_would_break_a_request_is_refused_and_not_met_later():
    [many] = problems(*[ADD] * (MOST_TOOLS + 1))
    assert (f"{MOST_TOOLS + 1} tools" in many, f"at most {MOST_TOOLS}" in many) == (True, True)
    deep = {"type": "object"}
    for _ in range(2_000):
        deep = {"type": "object", "properties": {"a": deep}}
    [nested] = problems({**ADD, "parameters": deep})
    assert nested.startswith("/0/parameters is nested")
    with pytest.raises(ToolsRefused, match="Give a list of tools"):
        read_tools({"name": "add"})
