import pytest

from apps.gym.wires.tool_names import strip_call_prefixes, strip_tool_prefix

KNOWN = {"get_weather", "weather", "email__reply", "look.up"}


@pytest.mark.parametrize(
    ("given", "bare"),
    [
        ("get_weather", "get_weather"),
        ("mcp__example_mcp_weather__get_weather", "get_weather"),
        ("mcp__a__email__reply", "email__reply"),
        ("email__reply", "email__reply"),
        ("functions.get_weather", "get_weather"),
        ("default_api:get_weather", "get_weather"),
        ("lab/get_weather", "get_weather"),
        ("tools.look.up", "look.up"),
        ("my_get_weather", "my_get_weather"),
        ("forecast", "forecast"),
        ("mcp__lab__unknown", "unknown"),
        ("mcp__lab__", "mcp__lab__"),
        ("mcp__lab", "mcp__lab"),
        ("", ""),
    ],
)
def test_a_name_is_taken_as_its_environment_knows_it(given, bare):
    assert strip_tool_prefix(given, KNOWN) == bare


def test_only_calls_are_renamed_and_only_where_their_name_differs():
    call = {"type": "function_call", "call_id": "c", "name": "mcp__lab__weather", "arguments": "{}"}
    others = [{"type": "message", "name": "mcp__lab__weather"}, {"type": "function_call", "name": None}]
    assert strip_call_prefixes([call, *others], KNOWN) == [{**call, "name": "weather"}, *others]
