"""One invocation of a command: field values, server, and exit codes of errors."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from shutil import copyfileobj
from sys import stdout
from typing import Any
from urllib.parse import quote

import aiohttp
import typer

from gymweb_client.cli.connection import Connection, NotSignedIn, WrongUsage, find_connection
from gymweb_client.cli.fields import Field, Operation, join_values, option_name, parameter_name
from gymweb_client.cli.output import Output
from gymweb_client.errors import ApiError, GymWebError
from gymweb_client.synchronous import GymWeb

FAILED, USAGE, DENIED, MISSING, UNREACHABLE, INTERRUPTED = 1, 2, 3, 4, 5, 130
"""Exit codes; docs/use/cli.md explains them."""
_BY_STATUS = {400: USAGE, 401: DENIED, 403: DENIED, 404: MISSING, 422: USAGE, 429: UNREACHABLE}


class Failed(GymWebError):
    """Raised if an operation was accepted but failed."""


class Call:
    """One invocation of a command. `body`, `query` and `path` are the fields of its operations by name."""

    def __init__(self, fields: list[Field], given: dict[str, Any], out: Output, url: str, profile: str) -> None:
        self.out, self.url, self.profile = out, url, profile
        self._given: dict[str, dict[str, Any]] = {"body": {}, "query": {}, "path": {}, "header": {}}
        for field in fields:
            value = given[parameter_name(field)]
            if value is not None and value != []:
                self._given[field["in"]][field["name"]] = join_values(field, value)
        self.body, self.query, self.path = self._given["body"], self._given["query"], self._given["path"]

    @property
    def key(self) -> dict[str, str]:
        """Return the idempotency key as an argument of `GymWeb.request`."""
        given = self._given["header"].get("Idempotency-Key", "")
        return {"idempotency_key": given} if given else {}

    @cached_property
    def connection(self) -> Connection | None:
        return find_connection(self.url, self.profile)

    @cached_property
    def gym(self) -> GymWeb:
        """Return the client, closed by `answering`. Raise NotSignedIn."""
        if self.connection is None:
            raise NotSignedIn("No server is configured. Run gymweb login, or set GYMWEB_URL and GYMWEB_KEY.")
        return GymWeb(self.connection.url, self.connection.key)

    def address(self, operation: Operation) -> str:
        return str(operation["path"]).format(**{name: quote(str(one), safe="") for name, one in self.path.items()})

    def send(self, operation: Operation) -> Any:
        """Send the operation and return the JSON of the response, or None."""
        body = self.body if any(field["in"] == "body" for field in operation["fields"]) else None
        return self.gym.request(operation["method"], self.address(operation), body, **self.key, **self.query)

    def fetch(self, address: str, target: Path | None, **query: Any) -> None:
        """Download a file to `target` or, without one, to standard output."""
        with tempfile.TemporaryDirectory(prefix="gymweb-") as folder:
            path = self.gym.fetch(address, target or Path(folder) / "answer", **query)
            if target is None:
                with path.open("rb") as file:
                    copyfileobj(file, stdout.buffer)
                    stdout.flush()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turn errors into a message on standard error and an exit code."""
        try:
            yield
        except ApiError as refused:
            self.out.say(f"Error: {explain(refused)}")
            raise typer.Exit(_BY_STATUS.get(refused.status, UNREACHABLE if refused.status >= 500 else FAILED)) from None
        except BrokenPipeError:
            raise  # The reader of the output has ended, as `head` does. Typer exits without a message.
        except (GymWebError, OSError, aiohttp.ClientError) as problem:
            text = str(problem) or type(problem).__name__
            if isinstance(problem, OSError) and problem.filename:
                text = f"{problem.filename}: {problem.strerror}"
            self.out.say(f"Error: {text}")
            raise typer.Exit(_code_of(problem)) from None
        except KeyboardInterrupt:
            self.out.say("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            if "gym" in self.__dict__:
                self.gym.close()


def _code_of(problem: Exception) -> int:
    if isinstance(problem, NotSignedIn):
        return DENIED
    if isinstance(problem, aiohttp.ClientError | TimeoutError | ConnectionError):
        return UNREACHABLE
    return USAGE if isinstance(problem, WrongUsage | FileNotFoundError) else FAILED


def explain(refused: ApiError) -> str:
    """Return the error message, with the option of each invalid value."""
    lines = [str(refused.problem.get("detail") or refused)]
    for error in refused.errors:
        place = str(error.get("pointer", "")).lstrip("/?").split("/")[0]
        lines.append(
            f"  {option_name(place)}: {error.get('message', '')}" if place else f"  {error.get('message', '')}"
        )
    if refused.status == 401:
        lines.append("  Run gymweb login, or set GYMWEB_KEY to a valid API key.")
    return "\n".join(lines)
