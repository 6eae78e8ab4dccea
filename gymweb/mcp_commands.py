"""Read GYMWEB_MCP_COMMANDS: which programs an environment may start on this machine."""

import json
import re
import shlex
from typing import Any

from gymweb.environment_variables import SettingRefused

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def read_commands(text: str) -> dict[str, dict[str, Any]]:
    """`{"files": "mcp-files /data"}`, or with an environment: `{"files": {"command": […], "environment": {…}}}`."""
    if not text.strip():
        return {}
    try:
        given = json.loads(text)
    except ValueError as error:
        raise SettingRefused(f"GYMWEB_MCP_COMMANDS is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise SettingRefused("GYMWEB_MCP_COMMANDS is an object: names and their commands.")
    return {name: _read_command(name, command) for name, command in given.items()}


def _read_command(name: str, given: Any) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        told = "a name has up to 64 letters, digits, _ and -"
        raise SettingRefused(f"GYMWEB_MCP_COMMANDS: {name!r} is no name: {told}.")
    whole = given if isinstance(given, dict) else {"command": given}
    command, environment = whole.get("command"), whole.get("environment", {})
    words = shlex.split(command) if isinstance(command, str) else command
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise SettingRefused(f"GYMWEB_MCP_COMMANDS: {name}: the command is a text or a list of words.")
    texts = isinstance(environment, dict) and all(isinstance(value, str) for value in environment.values())
    if not texts or set(whole) - {"command", "environment"}:
        raise SettingRefused(f"GYMWEB_MCP_COMMANDS: {name}: beside `command` there is `environment`, of texts.")
    return {"command": words, "environment": environment}
