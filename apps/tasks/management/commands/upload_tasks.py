"""`manage.py upload_tasks FILE --dataset SLUG --environment SLUG`: a new dataset version from a JSONL file."""

import sys
from argparse import ArgumentParser
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

from django.core.management.base import BaseCommand, CommandError

from apps.tasks.management.datasets import named_dataset
from apps.tasks.models import Upload
from apps.tasks.uploading import rejected_path, upload_file


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
                dataset=named_dataset(slug=dataset, name=options["name"], environment=environment),
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
