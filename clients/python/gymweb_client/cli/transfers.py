"""Uploads, imports and exports."""

import asyncio
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import aiohttp
from typer import Argument, Option

from gymweb_client.cli.calls import Call, Failed
from gymweb_client.cli.connection import WrongUsage
from gymweb_client.errors import WorkFailed

_ENCODINGS = {".jsonl": "jsonl", ".gz": "jsonl.gz", ".parquet": "parquet"}


def upload(
    call: Call,
    file: Annotated[
        Path, Argument(help="JSONL, JSON, CSV, TSV or Parquet, also .gz, .zst and .zip; - for standard input.")
    ],
    dataset: Annotated[str, Option("--dataset", help="Slug. A new one is created if --environment is given.")],
) -> None:
    """Upload a file of tasks as a new version of a dataset, and wait until it is loaded."""
    call.out.one(upload_tasks(call, dataset, file, call.query))


def upload_tasks(call: Call, dataset: str, file: Path, choices: dict[str, Any]) -> dict[str, Any]:
    if str(file) == "-":
        tasks: Any = nullcontext(sys.stdin.buffer)
        choices = {"filename": "stdin", **choices}
    else:
        tasks = call.out.reading(file)
        choices = {"filename": file.name, **choices}
    try:
        with tasks as opened:
            loaded: dict[str, Any] = call.gym.upload(dataset, opened, **choices)
    except WorkFailed as failed:
        _print_rejected_lines(call, failed.row)
        raise
    _print_rejected_lines(call, loaded)
    call.out.say(f"{dataset} version {loaded['version'] or '–'}: {loaded['accepted']} tasks, {loaded['state']}.")
    return loaded


def _print_rejected_lines(call: Call, row: dict[str, Any]) -> None:
    for error in row["errors"]:
        call.out.say(f"line {error['line']}: {error['message']}")
    if row["rejected"] > len(row["errors"]):
        call.out.say(f"… {row['rejected']} in total: gymweb uploads rejected {row['id']}")


def export(
    call: Call, output: Annotated[Path | None, Option("--output", "-o", help="File, or folder for all files.")] = None
) -> None:
    """Export a collection for a trainer, and download the files. An output name that ends in .jsonl, .jsonl.gz or
    .parquet writes one file; any other name writes a folder. Preference formats take the newest pair set of the
    collection unless --pair-set names one."""
    order = dict(call.body)
    format, collection = order.pop("format"), order.pop("collection")
    makes = {one["slug"]: one["makes"] for one in call.gym.request("GET", "exports/formats/")}
    if makes[format] == "preferences" and "pair_set" not in order:
        newest = next(call.gym.pages("pair-sets/", collection=collection, state="ready", limit=1), None)
        if newest is None:
            raise WrongUsage(f"{format} needs a pair set: gymweb pairs build {collection}")
        order["pair_set"] = newest["id"]
        call.out.say(f"Using pair set {newest['id']}, the newest of the collection.")
    call.out.one(download_export(call, format, collection, output, order))


def download_export(
    call: Call, format: str, collection: int, output: Path | None, order: dict[str, Any]
) -> dict[str, Any]:
    is_file = bool(output and output.suffix in _ENCODINGS)
    if output and is_file:
        order = {"encoding": _ENCODINGS[output.suffix], **order}
    with call.out.progress(f"Export {format}") as advance:
        export = call.gym.export(
            format, collection, progress=lambda row: advance(row["considered"], row["total"], ""), **order
        )
    manifest = call.gym.manifest(export["id"])
    dropped = ", ".join(f"{number} {reason}" for reason, number in manifest["counts"]["dropped"].items()) or "none"
    call.out.say(f"Export {export['id']}: {export['rows']} rows; left out: {dropped}.")
    if notice := manifest.get("trainability", {}).get("notice"):
        call.out.say(notice)
    if not_checked := manifest.get("not_checked"):
        call.out.say(not_checked)
    if output and not export["rows"]:
        raise Failed(f"No rows, so {output} is not written.")
    if output:
        if is_file and len(export["files"]) > 1:
            raise Failed(f"Export {export['id']} has {len(export['files'])} files: give a folder as --output.")
        fetch = call.gym.download if is_file else call.gym.download_folder
        call.out.say(f"Wrote {fetch(export, output)}.")
    return dict(export)


def import_rollouts(
    call: Call,
    files: Annotated[list[Path], Argument(help="JSONL files of one run, in any order.")],
    environment: Annotated[str, Option(help="Environment of a new dataset.")] = "",
) -> None:
    """Import stored rollouts, chat logs, trajectories or agent sessions as a collection."""
    choices = dict(call.query)
    if "dataset" not in choices:
        raise WrongUsage("Give --dataset.")
    dataset = choices.pop("dataset")
    if environment and not any(one["slug"] == dataset for one in call.gym.pages("datasets/")):
        call.gym.request("POST", "datasets/", {"slug": dataset, "name": dataset, "environment": environment})
    imported = call.gym.import_rollouts(dataset, files, **choices)
    for error in imported["errors"]:
        call.out.say(json.dumps(error, ensure_ascii=False))
    counts = ("refused", "superseded", "renumbered", "repeated")
    call.out.one({**{name: imported[name] for name in counts}, **imported["collection"]})


def import_config(
    call: Call,
    files: Annotated[list[Path], Argument(help="YAML files; later files override earlier ones.")],
    settings: Annotated[list[str], Option("--set", metavar="KEY=VALUE", help="Dotted key; overrides all files.")] = [],  # noqa: B006
    head: Annotated[
        str, Option(metavar="URL", help="Head server of a running NeMo Gym, to read the addresses from.")
    ] = "",
    preview: Annotated[bool, Option("--preview", help="Only show what would be registered.")] = False,
) -> None:
    """Register the environments, agents, models and datasets of NeMo Gym configurations."""
    texts = [f"--- # {path}\n{path.read_text(encoding='utf-8')}" for path in files]
    for number, setting in enumerate(settings, 1):
        key, equals, value = setting.partition("=")
        if not equals:
            raise WrongUsage(f"--set {setting}: give KEY=VALUE.")
        nested: Any = value
        for part in reversed(key.lstrip("+").split(".")):
            nested = f"{{{json.dumps(part)}: {nested}}}"
        texts.append(f"--- # --set {number}\n{nested}\n")
    address = "gym-configs/preview/" if preview else "gym-configs/"
    body = {**call.body, "text": "\n".join(texts)}
    if head:
        body["addresses"] = {**asyncio.run(_ask_head(head)), **body.get("addresses", {})}
    done = call.gym.request("POST", address, body, **call.key)
    for problem in done["problems"]:
        call.out.say(json.dumps(problem, ensure_ascii=False))
    call.out.rows(done["lines"], ["outcome", "kind", "slug", "told"], len(done["lines"]) or None)
    if done["problems"]:
        raise Failed("The configuration has problems.")


async def _ask_head(url: str) -> dict[str, str]:
    """Return the URLs of NeMo Gym's servers by name. Raise ClientError or Failed."""
    session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10), raise_for_status=True)
    async with session, session.get(f"{url.rstrip('/')}/server_instances") as reply:
        try:
            # `config_path` is the key of the server in the configuration.
            return {one["config_path"]: one["url"] for one in json.loads(await reply.read()) if one["url"]}
        except (ValueError, TypeError, KeyError):
            raise Failed(f"{url} is not the head server of a running NeMo Gym.") from None
