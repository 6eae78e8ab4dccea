"""`manage.py new_environment NAME --into FOLDER`: create the files of a custom environment."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.environments.scaffold import CannotScaffold, scaffold_environment


class Command(BaseCommand):
    help = "Write the first files of your own environment, outside this project. See docs/start/own_environment.md."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="small letters, digits and _")
        parser.add_argument("--into", default=".", metavar="FOLDER", help="where its folder is made (default: here)")

    def handle(self, *, name: str, into: str, **options: Any) -> None:
        try:
            files = scaffold_environment(name=name, into=Path(into))
        except CannotScaffold as problem:
            raise CommandError(str(problem)) from None
        for file in files:
            self.stdout.write(str(file))
        self.stdout.write(f"Next: GYMWEB_ENVIRONMENTS={files[0].parent}")
