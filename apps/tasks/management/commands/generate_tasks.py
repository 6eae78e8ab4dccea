"""`manage.py generate_tasks ENVIRONMENT --count N --out FILE` or `--dataset SLUG`: generate tasks of an environment."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.gym.environments.task_generation import DIFFICULTIES, TooFewTasks
from apps.gym.errors import EnvironmentFault
from apps.tasks.generated_datasets import (
    NoTaskGenerator,
    encode_tasks,
    ensure_environment,
    find_generator,
    load_generated,
)
from apps.tasks.management.datasets import named_dataset
from apps.tasks.models import Upload


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
        if options["count"] < 1:
            raise CommandError("--count must be at least 1")
        chosen = {name: options[name] for name in ("count", "seed", "difficulty")}
        try:
            name, kit = find_generator(environment)
            lines = list(encode_tasks(name, kit, **chosen, with_tools=options["tools"]))
        except NoTaskGenerator as unknown:
            raise CommandError(str(unknown)) from None
        except TooFewTasks as problem:
            raise CommandError(f"{environment}: {problem}") from None
        except EnvironmentFault as fault:
            raise CommandError(str(fault)) from fault.__cause__
        if dataset is None:
            self._write(lines, out or "-")
            return
        ensure_environment(environment)
        upload = load_generated(
            named_dataset(slug=dataset, name="", environment=environment),
            lines,
            filename=f"{environment}-{options['difficulty']}-{options['seed']}.jsonl",
            note=f"generated: seed {options['seed']}, {options['difficulty']}",
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
