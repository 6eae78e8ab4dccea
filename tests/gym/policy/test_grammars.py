"""Requests whose replies a grammar may constrain."""

import pytest

from apps.gym.wires.chat import chat_request
from apps.gym.wires.dialect import Dialect
from apps.gym.wires.grammars import has_grammar
from apps.gym.wires.protocol import Ask
from apps.gym.wires.responses_wire import responses_request

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}}
STRICT = {**TOOL, "strict": True}
FORM = {"format": {"type": "json_schema", "name": "sum", "schema": {"type": "object"}}}


@pytest.mark.parametrize("request_of", [chat_request, responses_request])
@pytest.mark.parametrize(
    ("tools", "sampling", "expected"),
    [
        ([], {}, False),
        ([TOOL], {"temperature": 1.0}, False),
        ([{**TOOL, "strict": False}], {"tool_choice": "auto"}, False),
        ([TOOL], {"tool_choice": "none"}, False),
        ([TOOL, STRICT], {}, True),
        ([TOOL], {"tool_choice": "required"}, True),
        ([TOOL], {"tool_choice": {"type": "function", "name": "add"}}, True),
        ([TOOL], {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [TOOL]}}, False),
        ([TOOL], {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [TOOL]}}, True),
        ([], {"tool_choice": "required"}, False),
        ([], {"text": FORM}, True),
        ([], {"text": {"format": {"type": "text"}, "verbosity": "low"}}, False),
        ([], {"guided_json": {"type": "object"}}, True),
        ([], {"structured_outputs": {"regex": "[0-9]"}}, True),
        ([], {"ebnf": 'root ::= "4"'}, True),
        ([], {"metadata": {"extra_body": '{"guided_regex": "[0-9]"}'}}, True),
    ],
)
def test_a_request_has_a_grammar(request_of, tools, sampling, expected):
    items = [{"role": "user", "content": "2 + 2"}]
    assert has_grammar(request_of(Ask(items=items, tools=tools, sampling=sampling), model_name="m")) is expected


def test_a_grammar_in_the_extra_body_of_the_model_counts():
    dialect = Dialect(extra_body={"response_format": {"type": "json_object"}})
    assert has_grammar(chat_request(Ask(items=[]), model_name="m", dialect=dialect))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"tools": [{"name": "add", "strict": True}]}, True),
        ({"tools": [{"name": "add"}], "tool_choice": {"type": "any"}}, True),
        ({"tools": [{"name": "add"}], "tool_choice": {"type": "auto"}}, False),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, True),
        ({"output_config": {"effort": "low"}}, False),
    ],
)
def test_a_request_of_the_messages_api_has_a_grammar(body, expected):
    assert has_grammar(body) is expected
