"""Run collections from the command line, from file to file, on a server or a temporary local one."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from gymweb_client.cli.calls import Call, Failed
from gymweb_client.cli.connection import WrongUsage
from gymweb_client.cli.local_server import local_server
from gymweb_client.cli.transfers import download_export, upload_tasks
from gymweb_client.errors import TimeIsUp

LOOK_SECONDS = 5.0
"""Seconds between checks why a collection waits."""


def _local(help: str) -> Any:
    return Option(help=help, rich_help_panel="Temporary server", show_default=False)


def collect(
    call: Call,
    *,
    file: Annotated[Path | None, Argument(help="Task file to upload first. Or use --dataset.")] = None,
    environment: Annotated[str, Option(help="Environment of the tasks.", show_default=False)] = "",
    output: Annotated[
        Path | None, Option("--output", "-o", help="Output file for the rollouts, in NeMo Gym format.")
    ] = None,
    wait: Annotated[bool, Option("--wait/--no-wait", help="Wait until the collection is finished.")] = True,
    local: Annotated[bool, _local("Use a temporary server even if signed in.")] = False,
    model_url: Annotated[str, _local("Base URL of the model, with /v1.")] = "",
    model_name: Annotated[str, _local("Model name at the endpoint.")] = "",
    wire: Annotated[str, _local("chat or responses; default: chat.")] = "chat",
    api_key_env: Annotated[str, _local("Environment variable with the API key of the model.")] = "",
    environment_url: Annotated[str, _local("URL of a resource server.")] = "",
    verifier: Annotated[str, _local("Verifier of the environment: its type, or JSON.")] = "",
) -> None:
    """Run every task of a file or a dataset with a model, and wait for the rollouts. If no server is
    configured (--url, profile or GYMWEB_URL), start a temporary local server and delete it afterwards."""
    is_local = local or call.connection is None
    if not is_local and (model_url or model_name or api_key_env or environment_url or verifier):
        raise WrongUsage("Add --local for options of a temporary server. gymweb models create registers a model.")
    if is_local and not (file and output and wait and environment):
        raise WrongUsage(
            "No server is configured. For a temporary server, give a task file, --environment and --output, "
            "without --no-wait. For an existing server, run gymweb login, or give --url or GYMWEB_URL."
        )
    if not (file or "dataset" in call.body) or (output and not wait):
        raise WrongUsage("Give a file of tasks or --dataset. --output and --no-wait cannot be combined.")
    if "policy_model" not in call.body and not model_url:
        raise WrongUsage("Give the policy model with --model.")
    if file:
        call.body.setdefault("dataset", re.sub(r"[^A-Za-z0-9_-]+", "-", file.name.split(".")[0]).strip("-") or "tasks")
    call.body.setdefault("agent", "default")
    call.body.setdefault("policy_model", "model")
    with _temporary(call, model_url, environment_url) if is_local else nullcontext():
        if is_local:
            _register_environment(call, environment, environment_url, verifier)
            _register_model(call, {"base_url": model_url, "model_name": model_name, "wire": wire}, api_key_env)
        if file:
            upload_tasks(call, call.body["dataset"], file, {"environment": environment or None})
        planned = call.gym.request("POST", "collections/", call.body, **call.key)
        if not wait:
            call.out.one(planned)
            return
        ended = _follow(call, planned["id"], should_continue=not is_local)
        if output and ended["completed"]:
            download_export(call, "nemo_gym_rollouts", ended["id"], output, {})
        _report(call, ended)


@contextmanager
def _temporary(call: Call, *urls: str) -> Iterator[None]:
    """Start a temporary server that may call the hosts of these URLs."""
    call.out.say("Starting a temporary server …")
    hosts = [re.sub(r"^https?://([^/]+).*", r"\1", url) for url in urls if url]
    with local_server(outbound_allow=",".join(hosts)) as call.connection:
        yield


def _register_environment(call: Call, slug: str, url: str, verifier: str) -> None:
    if slug in {one["slug"] for one in call.gym.pages("environments/")}:
        return
    kind: dict[str, Any] = {"adapter": "builtin", "builtin": slug}
    if url:
        kind = {"adapter": "http", "base_url": url}
    elif verifier:
        kind = {"adapter": "declared", "verifier": json.loads(verifier) if "{" in verifier else {"type": verifier}}
    call.gym.request("POST", "environments/", {"slug": slug, "name": slug, **kind})


def _register_model(call: Call, endpoint: dict[str, str], api_key_env: str) -> None:
    slug, body = call.body["policy_model"], {"provider": "compatible", **endpoint}
    if not endpoint["base_url"]:
        if slug != "scripted":
            raise WrongUsage(
                "A temporary server has no models. Give --model-url and --model-name, or --model scripted."
            )
        body = {"provider": "scripted"}
    elif api_key_env:
        if api_key_env not in os.environ:
            raise WrongUsage(f"The environment variable {api_key_env} is not set.")
        body["api_key"] = os.environ[api_key_env]
    call.gym.request("POST", "policy-models/", {"slug": slug, "name": slug, **body})


def watch(call: Call, collection: Annotated[int, Argument(metavar="COLLECTION")]) -> None:
    """Follow a collection until it has ended, and print its figures."""
    _report(call, _follow(call, collection, should_continue=True))


def _follow(call: Call, collection: int, *, should_continue: bool) -> dict[str, Any]:
    """Wait, with a progress bar, until the collection has ended. Report why it waits."""
    told: set[str] = set()
    with call.out.progress(f"Collection {collection}") as advance:

        def show(row: Any) -> None:
            reward = "" if row["mean_reward"] is None else f"reward {row['mean_reward']:.3f}"
            failed = f", {row['failed']} failed" if row["failed"] else ""
            advance(row["completed"] + row["failed"] + row["cancelled"], row["total"], reward + failed)

        try:
            while True:
                with suppress(TimeIsUp):
                    return dict(call.gym.wait(collection, seconds=LOOK_SECONDS, progress=show))
                for hold in _find_holds(call, collection):
                    # Times and counts of the same reason change.
                    if (reason := re.sub(r"\d+", "", hold)) not in told:
                        call.out.say(f"Rollouts wait: {hold}")
                        told.add(reason)
        except KeyboardInterrupt:
            if should_continue:
                call.out.say(f"Collection {collection} continues: gymweb watch {collection}")
            raise


def _find_holds(call: Call, collection: int) -> list[str]:
    """Return why the collection waits: no worker, or what the server says."""
    if not any(call.gym.pages("workers/", state="active", limit=1)):
        return ["no worker is running. Start one with manage.py serve or rolloutworker."]
    row: dict[str, Any] = dict(call.gym.collection(collection))
    return list(row["held_back_by"])


def _report(call: Call, row: dict[str, Any]) -> None:
    metrics = call.gym.metrics(row["id"])
    told = {name: row[name] for name in ("state", "total", "completed", "failed", "cancelled", "mean_reward")}
    call.out.one({"id": row["id"], **told, "pass_at_1": metrics["pass_at_1"], "errors": metrics["errors"]})
    if row["state"] == "paused":
        adjust = f"gymweb collections adjust {row['id']} --help; gymweb collections resume {row['id']}"
        raise Failed(f"Collection {row['id']}: {'; '.join(row['held_back_by']) or 'paused'}.\n{adjust}")
    if row["state"] == "cancelled" or (row["failed"] and not row["completed"]):
        raise Failed(
            f"Collection {row['id']} is {row['state']}: {row['completed']} of {row['total']} rollouts completed."
        )
