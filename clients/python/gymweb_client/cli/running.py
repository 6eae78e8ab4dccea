"""Run the server itself with all servers that configurations name. Needs the server installed beside this command."""

import os
from pathlib import Path
from typing import Annotated

from typer import Option

from gymweb_client.cli.calls import Call
from gymweb_client.cli.local_server import find_server


def run(
    call: Call,
    *,
    config: Annotated[
        list[Path], Option("--config", help="Configuration of NeMo Gym; repeat it. Later files override earlier ones.")
    ] = [],  # noqa: B006
    settings: Annotated[list[str], Option("--set", metavar="KEY=VALUE", help="Dotted key; overrides all files.")] = [],  # noqa: B006
    address: Annotated[
        list[str], Option(metavar="NAME=URL", help="A server that already runs. It is watched, not started.")
    ] = [],  # noqa: B006
    host: Annotated[str, Option(help="Address on which GymWeb listens.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port of GymWeb, 0 for any free one.")] = 8000,
    python: Annotated[
        Path | None, Option(help="Run all servers with this Python instead of a virtual environment for each.")
    ] = None,
) -> None:
    """Start GymWeb with a worker, and every resource server, agent and model server that the configurations name.
    Wait until all are healthy, register them, and print a table. Ctrl-C stops them all. If one ends, all are stopped
    and its log is printed. Without --config, start GymWeb with its built-in environments."""
    executable, folder = find_server()
    command = [executable, str(folder / "manage.py"), "run", "--host", host, "--port", str(port)]
    for option, values in (("--config", config), ("--set", settings), ("--address", address)):
        command += [part for value in values for part in (option, str(value))]
    if python:
        command += ["--python", str(python)]
    os.execv(executable, [*command, *(["--json"] if call.out.as_json else [])])  # noqa: S606
