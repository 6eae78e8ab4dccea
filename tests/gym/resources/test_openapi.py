import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.resources.server_survey import Survey, read_survey, read_tools

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["paths", "/a", "post", "requestBody", "content", "application/json", "schema", "$ref"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_document_gives_a_list(document):
    assert isinstance(read_tools(document), list)


def test_a_schema_that_contains_itself_ends():
    document = {
        "paths": {
            "/tree": {"post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": _name("Tree")}}}}}}
        },
        "components": {"schemas": {"Tree": {"type": "object", "properties": {"left": {"$ref": _name("Tree")}}}}},
    }
    (tool,) = read_tools(document)
    assert tool["parameters"]["properties"]["left"]["type"] == "object"


@pytest.mark.parametrize("path", ["/", "/a/b", "/{path}", "/verify", "/seed_session", "/close_session", "/step"])
def test_routes_of_the_protocol_are_no_tools(path):
    assert read_tools({"paths": {path: {"post": {}}}}) == []


def test_a_stored_tool_that_became_a_route_of_the_protocol_is_left_out():
    stored = Survey(tools=[tool("look"), tool("close_session")], routes=frozenset({"look", "close_session"})).describe()
    survey = read_survey(stored)
    assert ([one["name"] for one in survey.tools], survey.closing_routes) == (["look"], ["close_session"])


def tool(name):
    return {"type": "function", "name": name, "description": "", "parameters": {}, "strict": False}


def _name(schema):
    return f"#/components/schemas/{schema}"
