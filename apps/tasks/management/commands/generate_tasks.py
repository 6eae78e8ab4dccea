"""`manage.py generate_tasks ENVIRONMENT --count N --out FILE` or `--dataset SLUG`: generate tasks of an environment."""

import io
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from django.core.management.base import BaseCommand, CommandError

from apps.environments.environment_changes import save_environment
from apps.environments.models import Adapter, Environment
from apps.gym.environments.task_generation import DIFFICULTIES, Kit, TooFewTasks, generate_tasks
from apps.gym.errors import EnvironmentFault
from apps.gym.traces.items import TaskRow, Tool
from apps.gym.written.registry import find_environment, find_kit, list_kits
from apps.tasks.management.datasets import named_dataset
from apps.tasks.models import Upload
from apps.tasks.upload_choices import Choices
from apps.tasks.upload_jobs import upload_file


class Command(BaseCommand):
    help = "Generate tasks of a built-in environment by seed, into a file or as a new version of a dataset."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("environment", metavar="ENVIRONMENT", help="slug, or the name of a built-in environment")
        parser.add_argument("--count", type=int, default=500)
        parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same tasks")
        parser.add_argument("--difficulty", choices=[*DIFFICULTIES, "mixed"], default="mixed")
        parser.add_argument(
            "--tools",
            action="store_true",
            help="write the tools into each row, for clients that do not fetch them",
        )
        where = parser.add_mutually_exclusive_group(required=True)
        where.add_argument("--out", help="a JSONL file, or - for standard output")
        where.add_argument("--dataset", help="slug; the dataset is created where it does not exist")

    def handle(self, *, environment: str, out: str | None, dataset: str | None, **options: Any) -> None:
        name, kit = _find_kit(environment)
        if options["count"] < 1:
            raise CommandError("--count must be at least 1")
        rows = generate_tasks(kit, count=options["count"], seed=options["seed"], difficulty=options["difficulty"])
        try:
            lines = list(_encode(rows, _tools_of(name) if options["tools"] else []))
        except TooFewTasks as problem:
            raise CommandError(f"{environment}: {problem}") from None
        except EnvironmentFault as fault:
            raise CommandError(str(fault)) from fault.__cause__
        if dataset is None:
            self._write(lines, out or "-")
            return
        _ensure_environment(environment)
        upload = upload_file(
            dataset=named_dataset(slug=dataset, name="", environment=environment),
            stream=io.BytesIO(b"".join(lines)),
            filename=f"{environment}-{options['difficulty']}-{options['seed']}.jsonl",
            choices=Choices(note=f"generated: seed {options['seed']}, {options['difficulty']}"),
        )
        if upload.state != Upload.State.READY or upload.version is None:
            raise CommandError(upload.message)
        self.stdout.write(f"{upload.version}: {upload.version.task_count:,} tasks")

    def _write(self, lines: list[bytes], out: str) -> None:
        if out == "-":
            self.stdout.write(b"".join(lines).decode(), ending="")
            return
        try:
            Path(out).write_bytes(b"".join(lines))
        except OSError as error:
            raise CommandError(f"{out} cannot be written: {error.strerror}") from None
        self.stdout.write(f"{out}: {len(lines):,} tasks")


def _find_kit(slug: str) -> tuple[str, Kit]:
    """Return the environment's name and its kit."""
    found = Environment.objects.filter(slug=slug, adapter=Adapter.BUILTIN).values_list("builtin", flat=True).first()
    name = found or slug
    kit = find_kit(name)
    if kit is None:
        raise CommandError(f"{slug}: only {', '.join(list_kits())} can generate tasks.")
    return name, kit


def _tools_of(name: str) -> list[Tool]:
    found = find_environment(name)
    return list(found.tools) if found else []


def _ensure_environment(slug: str) -> None:
    """Register the built-in environment under its own name if needed."""
    if Environment.objects.filter(slug=slug).exists():
        return
    name = slug.replace("_", " ").capitalize()
    environment = Environment(slug=slug, name=name, adapter=Adapter.BUILTIN, builtin=slug)
    save_environment(environment=environment, user=None)


def _encode(rows: Iterator[TaskRow], tools: list[Tool]) -> Iterator[bytes]:
    for row in rows:
        params = row["responses_create_params"]
        with_tools = {**row, "responses_create_params": {**params, "tools": tools}} if tools else row
        yield orjson.dumps(with_tools) + b"\n"
