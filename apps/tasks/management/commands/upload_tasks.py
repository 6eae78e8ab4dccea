"""`manage.py upload_tasks FILE --dataset SLUG --environment SLUG`: a new dataset version from a JSONL file."""

import sys
from argparse import ArgumentParser
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

from django.core.management.base import BaseCommand, CommandError

from apps.environments.models import Environment
from apps.tasks.models import Dataset, Upload
from apps.tasks.uploading import create_dataset, rejected_path, upload_file


class Command(BaseCommand):
    help = "Upload a JSONL file of tasks (NeMo Gym row format) as a new version of a dataset."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="the JSONL file, or - for standard input")
        parser.add_argument("--dataset", required=True, help="slug; the dataset is created where it does not exist")
        parser.add_argument("--environment", help="slug; needed for a new dataset")
        parser.add_argument("--name", default="", help="name of a new dataset (default: its slug)")
        parser.add_argument("--on-error", choices=Upload.OnError.values, default=Upload.OnError.REJECT)

    def handle(self, *, file: str, dataset: str, environment: str | None, **options: Any) -> None:
        with _open(file) as stream:
            upload = upload_file(
                dataset=_dataset(slug=dataset, name=options["name"], environment=environment),
                stream=stream,
                filename="stdin" if file == "-" else file,
                on_error=options["on_error"],
            )
        for error in upload.errors:
            self.stderr.write(f"line {error['line']}: {error['message']}")
        if upload.rejected > len(upload.errors):
            self.stderr.write(f"… and {upload.rejected - len(upload.errors):,} more lines")
        if path := rejected_path(upload):
            self.stderr.write(f"All refused lines: {path}")
        if upload.state != Upload.State.READY:
            raise CommandError(upload.message)
        refused = f", {upload.rejected:,} lines refused" if upload.rejected else ""
        self.stdout.write(f"{upload.version}: {upload.accepted:,} tasks{refused}")
        if upload.message:
            self.stderr.write(upload.message)


def _open(file: str) -> AbstractContextManager[IO[bytes]]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from None


def _dataset(*, slug: str, name: str, environment: str | None) -> Dataset:
    dataset = Dataset.objects.select_related("environment").filter(slug=slug).first()
    if dataset:
        if environment not in (None, dataset.environment.slug):
            raise CommandError(f"The dataset {slug} has the environment {dataset.environment.slug}, not {environment}.")
        return dataset
    if environment is None:
        raise CommandError(f"There is no dataset {slug} yet: name its environment with --environment.")
    found = Environment.objects.filter(slug=environment).first()
    if found is None:
        known = ", ".join(Environment.objects.order_by("slug").values_list("slug", flat=True)) or "none"
        raise CommandError(f"There is no environment {environment}. Known: {known}.")
    return create_dataset(slug=slug, name=name or slug, environment=found)
