"""GYMWEB_MCP_COMMANDS: what an operator writes, and what is refused at the start."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from gymweb.environment_variables import read_commands


def test_a_command_is_a_text_or_words_and_may_have_an_environment():
    text = '{"files": "mcp-files \'/my data\'", "notes": {"command": ["mcp-notes"], "environment": {"KEY": "1"}}}'
    assert read_commands(text) == {
        "files": {"command": ["mcp-files", "/my data"], "environment": {}},
        "notes": {"command": ["mcp-notes"], "environment": {"KEY": "1"}},
    }
    assert read_commands("  ") == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mcp-files", "is not JSON"),
        ('["mcp-files"]', "must be an object"),
        ('{"a b": "x"}', "is not a valid name"),
        ('{"a": ""}', "the command must be text or a list of words"),
        ('{"a": []}', "the command must be text or a list of words"),
        ('{"a": ["x", 1]}', "the command must be text or a list of words"),
        ('{"a": {"command": "x", "environment": {"K": 1}}}', "an object of strings"),
        ('{"a": {"command": "x", "shell": true}}', "an object of strings"),
    ],
)
def test_an_invalid_command_names_the_setting(text, told):
    with pytest.raises(ImproperlyConfigured, match=f"GYMWEB_MCP_COMMANDS.*{told}"):
        read_commands(text)
