"""Read the commands declared in `commands.toml`."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple


class Command(NamedTuple):
    """A command that sends one operation; commands.toml explains the fields."""

    operation: str
    columns: str = ""
    arguments: tuple[str, ...] = ()
    empty: str = "Done."
    is_file: bool = False
    help: str = ""


class Workflow(NamedTuple):
    """A command with its own function, whose options are fields of these operations."""

    operations: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


_DECLARED: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text("utf-8")
)
HELP: dict[str, str] = {name: group.pop("help") for name, group in _DECLARED["groups"].items()}
NOUNS: dict[str, str] = {name: group.pop("noun") for name, group in _DECLARED["groups"].items()}
GROUPS = {
    name: {command: Command(**given) for command, given in group.items()} for name, group in _DECLARED["groups"].items()
}
WORKFLOWS = {place: Workflow(**given) for place, given in _DECLARED["workflows"].items()}


def operations_used() -> set[str]:
    commands = {command.operation for group in GROUPS.values() for command in group.values()}
    return commands.union(*(workflow.operations for workflow in WORKFLOWS.values()))
