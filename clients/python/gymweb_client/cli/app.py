"""The command `gymweb`: commands whose options are the fields of API operations."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gymweb_client.cli import collecting, gating, running, scoring, transfers, workflows
from gymweb_client.cli.calls import Call
from gymweb_client.cli.declarations import GROUPS, HELP, NOUNS, WORKFLOWS, Command, Workflow
from gymweb_client.cli.fields import declare_parameter, load_operations
from gymweb_client.cli.output import ROWS_OF_A_TABLE, Output
from gymweb_client.cli.transcripts import describe_review

Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Maximum rows.", show_default=False)]
Target = Annotated[Path | None, typer.Option("--output", "-o", help="File to write. Default: standard output.")]
_SERVER = "Server"
FUNCTIONS: dict[str, Callable[..., None]] = {
    "login": workflows.login,
    "logout": workflows.logout,
    "profiles": workflows.profiles,
    "whoami": workflows.whoami,
    "run": running.run,
    "upload": transfers.upload,
    "collect": collecting.collect,
    "watch": collecting.watch,
    "show": workflows.show,
    "export": transfers.export,
    "reverify": workflows.reverify,
    "recheck": workflows.recheck,
    "gate": gating.gate,
    "import rollouts": transfers.import_rollouts,
    "import config": transfers.import_config,
    "models check-logprobs": scoring.check_logprobs,
    "pairs build": workflows.build_pairs,
    "pairs decide": workflows.decide_pairs,
}
"""Functions of the workflows in commands.toml, by command name."""


def _common(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON to standard output, one object per line for lists.")
    ] = False,
    url: Annotated[str, typer.Option("--url", help="URL of the server.", rich_help_panel=_SERVER)] = "",
    profile: Annotated[str, typer.Option("--profile", help="Profile of gymweb login.", rich_help_panel=_SERVER)] = "",
) -> None:
    """Declare the options of every command."""


class ListGroup(TyperGroup):
    """A command group that runs its `list` command if none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "list" in self.commands and (not args or (args[0].startswith("-") and args[0] != "--help")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def build_app() -> typer.Typer:
    app = typer.Typer(
        help="GymWeb from the command line: upload tasks, collect rollouts, review, export.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    groups = {
        "": app,
        "import": typer.Typer(no_args_is_help=True, help="Import stored rollouts, or configurations of NeMo Gym."),
    }
    groups |= {name: typer.Typer(cls=ListGroup, help=text) for name, text in HELP.items()}
    for name, commands in GROUPS.items():
        for command_name, command in commands.items():
            run = _plain(NOUNS[name], command_name, command)
            _add(groups[name], command_name, run, Workflow((command.operation,), command.arguments))
    for place, workflow in WORKFLOWS.items():
        group, _, name = place.rpartition(" ")
        _add(groups[group], name, FUNCTIONS[place], workflow)
    for name, below in groups.items():
        if below is not app:
            app.add_typer(below, name=name)
    return app


def _add(app: typer.Typer, name: str, run: Callable[..., None], options: Workflow) -> None:
    """Add a command with one parameter per field of its operations, and the common options."""
    own = list(inspect.signature(run).parameters.values())[1:]
    operations = [load_operations()[one] for one in options.operations]
    fields = [field for one in operations for field in one["fields"] if field["name"] not in options.replaces]
    names = {field["name"] for field in fields}
    generated = [
        declare_parameter(
            field,
            names,
            is_argument=field["in"] == "path" or (field["in"] == "body" and field["name"] in options.arguments),
            is_optional=field["name"] in options.optional,
        )
        for field in fields
    ]
    common = list(inspect.signature(_common).parameters.values())

    def command(**given: Any) -> None:
        call = Call(fields, given, Output(as_json=given["as_json"]), given["url"], given["profile"])
        with call.answering():
            run(call, **{parameter.name: given[parameter.name] for parameter in own})

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *generated, *common)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    app.command(name, help=(inspect.getdoc(run) or "").replace("[", r"\["))(command)


def _plain(noun: str, name: str, command: Command) -> Callable[..., None]:
    """Return a function that sends the command's operation and prints the response."""
    operation = load_operations()[command.operation]
    columns = command.columns.split()

    def fetch(call: Call, output: Target = None) -> None:
        call.fetch(call.address(operation), output, **call.query)

    def list_rows(call: Call, limit: Limit = None) -> None:
        shown = str(call.query["fields"]).split(",") if "fields" in call.query else columns
        most = limit or (None if call.out.as_json else ROWS_OF_A_TABLE)
        page = {"limit": min(most + 1, 1000)} if most else {}
        call.out.rows(call.gym.pages(call.address(operation), **page, **call.query), shown, limit)

    def send(call: Call) -> None:
        answer = call.send(operation)
        if call.out.as_json or not answer:
            call.out.one(answer, empty=command.empty)
        elif rows := answer if isinstance(answer, list) else answer.get("results"):
            call.out.rows(rows, columns, len(rows))
        elif answer.get("shown"):
            call.out.text(describe_review(answer))
        else:
            call.out.one(answer)

    run = fetch if command.is_file else list_rows if operation["pages"] else send
    run.__doc__ = operation["help"] or command.help or _default_help(noun, name)
    return run


def _default_help(noun: str, name: str) -> str:
    """Return the help of a command, for example `List datasets.` or `Show a dataset.`"""
    if name == "list":
        return f"List {noun.removesuffix('y')}ies." if noun.endswith("y") else f"List {noun}s."
    return f"{name.capitalize()} {'an' if noun[0] in 'aeiou' else 'a'} {noun}."
