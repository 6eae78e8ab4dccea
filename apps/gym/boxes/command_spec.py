"""What runs for a task: the settings of a command agent, with placeholders that are filled in for each attempt."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any

import msgspec

from apps.gym.specs import Option, spec_problems

PLACEHOLDERS = (
    "base_url",
    "openai_base_url",
    "anthropic_base_url",
    "mcp_url",
    "api_key",
    "model",
    "instruction",
    "instruction_file",
    "workdir",
    "max_turns",
)
"""Names that are replaced where they stand in braces. Other braces are kept."""
MAX_TEXT = 100_000
_PLACEHOLDER = re.compile("{(" + "|".join(PLACEHOLDERS) + ")}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RELATIVE = "relative to the working folder"


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a command agent. Placeholders in command, variables and files are filled in."""

    command: Annotated[
        list[str],
        Option(
            "Command",
            "The program and its arguments. They may contain placeholders.",
            length=200,
            each=Option("Argument", length=MAX_TEXT, exact=True),
            example=["agent", "--model", "{model}", "{instruction}"],
        ),
    ] = []
    variables: Annotated[
        dict[str, str],
        Option(
            "Environment variables",
            "May contain placeholders. Do not enter secrets: all users who can view agents see the values.",
            length=100,
            each=Option("Value", length=MAX_TEXT, exact=True),
            example={"OPENAI_BASE_URL": "{openai_base_url}"},
        ),
    ] = {}
    files: Annotated[
        dict[str, str],
        Option(
            "Files",
            f"JSON object of path to content. Paths are {_RELATIVE}. Contents may contain placeholders.",
            length=100,
            each=Option("Content", length=MAX_TEXT, exact=True),
            example={"config.toml": 'model = "{model}"'},
        ),
    ] = {}
    answer_file: Annotated[
        str,
        Option(
            "Answer file",
            f"Path of the file with the answer, {_RELATIVE}. If empty, the standard output is the answer.",
            length=500,
        ),
    ] = ""
    artifacts: Annotated[
        list[str],
        Option(
            "Artifacts",
            f"Paths of the files to store in the trace, {_RELATIVE}",
            length=20,
            each=Option("Path", low=1, length=500),
        ),
    ] = []
    mounts: Annotated[
        list[str],
        Option(
            "Mounted folders",
            "Read-only; only folders in GYMWEB_AGENT_MOUNTS",
            length=20,
            each=Option("Folder", low=1, length=500),
        ),
    ] = []


def find_spec_problems(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the first problem of each option of these settings."""
    if unknown := settings.keys() - set(CommandSpec.__struct_fields__):
        return {min(unknown): f"Unknown option. Choose one of: {', '.join(CommandSpec.__struct_fields__)}."}
    found = spec_problems(CommandSpec, settings)
    if not found and not any(settings.get("command", [])[:1]):
        found["command"] = "Give the program and its arguments."
    if found:
        return found
    paths = {"files": [*settings.get("files", {})], "artifacts": settings.get("artifacts", [])}
    paths["answer_file"] = [path] if (path := settings.get("answer_file", "")) else []
    for option, given in paths.items():
        if wrong := [path for path in given if not _is_inside(path)]:
            found[option] = f"{wrong[0]!r} is not a path below the working folder."
    if wrong := [name for name in settings.get("variables", {}) if not _VARIABLE.fullmatch(name)]:
        found["variables"] = f"{wrong[0]!r} is not the name of a variable."
    return found


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path and path[-1:] != "/"


class FilledCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command whose placeholders are filled in."""

    command: list[str]
    variables: dict[str, str]
    files: dict[str, str]


def fill_command(spec: CommandSpec, values: Mapping[str, str]) -> FilledCommand:
    """Return the command of one attempt. Braces in the values are kept."""
    return FilledCommand(
        command=_fill_all(spec.command, values),
        variables=dict(zip(spec.variables, _fill_all([*spec.variables.values()], values), strict=True)),
        files=dict(zip(spec.files, _fill_all([*spec.files.values()], values), strict=True)),
    )


def _fill_all(texts: Sequence[str], values: Mapping[str, str]) -> list[str]:
    return [_PLACEHOLDER.sub(lambda found: values[found[1]], text) for text in texts]
