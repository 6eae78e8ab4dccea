"""`manage.py upload_tasks FILE --dataset SLUG --environment SLUG`: create a dataset version from a file."""

import sys
from argparse import ArgumentParser
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

import orjson
from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from apps.accounts.disk_space import DiskFull
from apps.accounts.management.spec_arguments import add_arguments, given_options
from apps.tasks.gold_checks import describe_check, read_check
from apps.tasks.management.datasets import named_dataset
from apps.tasks.models import Upload
from apps.tasks.rejected_rows import rejected_path
from apps.tasks.upload_choices import ChoiceRefused, Choices, read_shares
from apps.tasks.upload_jobs import upload_file
from apps.tasks.upload_turns import DatasetIsBusy


class Command(BaseCommand):
    help = "Upload a file of tasks (JSONL, JSON, CSV, TSV, Parquet; also .gz, .zst) as a new version of a dataset."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="the file, or - for standard input")
        parser.add_argument("--dataset", required=True, help="slug; the dataset is created where it does not exist")
        parser.add_argument("--environment", help="slug; needed for a new dataset")
        parser.add_argument("--name", default="", help="name of a new dataset (default: its slug)")
        add_arguments(parser, Choices, leave=["mapping", "split_ratios", "check_only"])
        parser.add_argument("--mapping", help="slug of a saved column mapping, or a JSON file that holds one")
        parser.add_argument("--split-ratios", default="", help="shares of several splits: train:0.9,validation:0.1")
        parser.add_argument("--check", action="store_true", help="validate only, store nothing")

    def handle(self, *, file: str, dataset: str, environment: str | None, **options: Any) -> None:
        with _open(file) as stream, _progress(stream, file) as counted:
            try:
                choices = _choices(options)
                upload = upload_file(
                    dataset=named_dataset(slug=dataset, name=options["name"], environment=environment),
                    stream=counted,
                    filename="stdin" if file == "-" else file,
                    choices=choices,
                )
            except ChoiceRefused as wrong:
                raise CommandError(f"--{wrong.argument.replace('_', '-')}: {wrong}") from None
            except (DatasetIsBusy, DiskFull) as problem:
                raise CommandError(str(problem)) from None
        for error in upload.errors:
            self.stderr.write(f"line {error['line']}: {error['message']}")
        if upload.rejected > len(upload.errors):
            self.stderr.write(f"… and {upload.rejected - len(upload.errors):,} more lines")
        if path := rejected_path(upload):
            self.stderr.write(f"All rejected lines: {path}")
        if upload.state not in {Upload.State.READY, Upload.State.CHECKED}:
            raise CommandError(upload.message)
        self.stdout.write(_summary(upload))
        if upload.message:
            self.stderr.write(upload.message)
        if upload.version and read_check(upload.version)["less"]:
            self.stderr.write(describe_check(upload.version))


def _summary(upload: Upload) -> str:
    refused = f", {upload.rejected:,} lines rejected" if upload.rejected else ""
    if upload.state == Upload.State.CHECKED:
        counts = ", ".join(f"{number:,} {name}" for name, number in upload.counts.items() if number)
        return f"validated, nothing stored: {upload.accepted:,} tasks{refused} ({counts or 'none'})"
    assert upload.version is not None
    return f"{upload.version}: {upload.version.task_count:,} tasks{refused}"


def _choices(options: dict[str, Any]) -> Choices:
    given = given_options(Choices, options)
    shares, mapping = read_shares(options["split_ratios"]), _mapping(options["mapping"])
    return Choices(**{**given, "mapping": mapping, "split_ratios": shares, "check_only": options["check"]})


def _mapping(given: str | None) -> dict[str, Any] | str | None:
    if given is None or not given.endswith(".json"):
        return given
    try:
        found = orjson.loads(Path(given).read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise CommandError(f"--mapping: {given} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise CommandError(f"--mapping: {given} holds no JSON object")
    return found


def _open(file: str) -> AbstractContextManager[IO[bytes]]:
    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from None


def _progress(stream: IO[bytes], file: str) -> AbstractContextManager[Any]:
    """Return the stream, with a progress bar if the output is a terminal."""
    if file == "-" or not sys.stderr.isatty() or file.endswith(".parquet"):
        return nullcontext(stream)
    return tqdm.wrapattr(stream, "read", total=Path(file).stat().st_size, unit="B", unit_scale=True)
