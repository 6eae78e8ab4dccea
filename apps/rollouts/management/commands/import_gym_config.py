"""`manage.py import_gym_config FILE…`: register what NeMo Gym's YAML configurations describe."""

import os
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.gym.gymconfig.config_problems import ConfigRefused
from apps.gym.gymconfig.descriptions import describe_config
from apps.rollouts.imports.gym_config_import import Registered, ask_head, register_config


class Command(BaseCommand):
    help = "Register the resource servers, agents, models and datasets of NeMo Gym configurations (YAML)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", type=Path, help="YAML files; a later one overrides an earlier")
        parser.add_argument("--env", type=Path, help="env.yaml: over all files (default: the one in this folder)")
        parser.add_argument(
            "--root", type=Path, action="append", default=[], help="where included paths are looked for"
        )
        parser.add_argument(
            "--set", action="append", default=[], metavar="KEY=VALUE", help="a dotted key, over all files"
        )
        parser.add_argument(
            "--server", action="append", default=[], metavar="NAME=URL", help="where a resource server runs"
        )
        parser.add_argument(
            "--head", metavar="URL", help="the head server of a running NeMo Gym, which knows where all run"
        )
        parser.add_argument("--no-models", action="store_true", help="leave models out")
        parser.add_argument("--no-data", action="store_true", help="leave datasets out")
        parser.add_argument("--no-upload", action="store_true", help="register datasets, load no tasks")

    def handle(self, *, files: list[Path], **options: Any) -> None:
        environment = options["env"] or (Path("env.yaml") if Path("env.yaml").is_file() else None)
        try:
            description, values = describe_config(
                [*files, *([environment] if environment else [])],
                environment=os.environ,
                roots=[Path.cwd(), *options["root"]],
                settings=_pairs(options["set"], "--set"),
                without_models=options["no_models"],
            )
            addresses = ask_head(options["head"]) if options["head"] else {}
            done = register_config(
                description=description,
                values=values,
                addresses={**addresses, **_pairs(options["server"], "--server")},
                without_data=options["no_data"],
                upload=not options["no_upload"],
            )
        except ConfigRefused as refused:
            raise CommandError(str(refused)) from None
        self._print(done)

    def _print(self, done: Registered) -> None:
        for line in done.lines:
            told = f"  {line.told}" if line.told else ""
            self.stdout.write(f"{line.outcome:<9}  {line.kind:<12}  {line.slug}{told}")
        counts = Counter(line.outcome for line in done.lines)
        self.stdout.write(
            ", ".join(f"{number} {outcome}" for outcome, number in counts.items()) or "nothing to register"
        )


def _pairs(given: list[str], option: str) -> dict[str, str]:
    pairs = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise CommandError(f"{option} {one}: write it with a name, = and a value")
        pairs[name.lstrip("+")] = value
    return pairs
