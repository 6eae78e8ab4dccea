"""`manage.py import_rollouts FILE… --dataset SLUG`: stored rollouts as a collection with traces and rewards."""

import json
from argparse import ArgumentParser
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.agents.models import Agent
from apps.gym.rollout_files.shapes.stored_rows import FORMATS
from apps.policies.models import PolicyModel
from apps.rollouts.imports.rollout_import import Imported, import_rollouts
from apps.rollouts.imports.task_matching import File, ImportRefused
from apps.tasks.management.datasets import named_dataset
from apps.tasks.models import Upload


class Command(BaseCommand):
    help = (
        "Import stored rollouts, in any order: NeMo Gym's rollouts, failures, and the task rows or materialised inputs "
        "they belong to; results.jsonl of verifiers, with its metadata.json; chat logs in OpenAI's format. The same "
        "files again give the collection that exists."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help="JSONL files of one collection run")
        parser.add_argument("--dataset", required=True, help="slug; the dataset is created where it does not exist")
        parser.add_argument("--environment", help="slug; needed for a new dataset")
        parser.add_argument("--agent", default="default", metavar="SLUG")
        parser.add_argument("--model", metavar="SLUG", help="the policy model (default: one named as in the rows)")
        parser.add_argument("--name", default="", help="name of the collection")
        parser.add_argument(
            "--format", choices=list(FORMATS), default="auto", help="what the lines are (default: auto)"
        )
        parser.add_argument("--on-error", choices=Upload.OnError.values, default=Upload.OnError.REJECT)
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *, files: list[str], **options: Any) -> None:
        agent = _find(Agent, options["agent"])
        model = _find(PolicyModel, options["model"]) if options["model"] else None
        with ExitStack() as stack:
            opened = [File(Path(name).name, stack.enter_context(_open(name))) for name in files]
            dataset = named_dataset(slug=options["dataset"], name="", environment=options["environment"])
            try:
                imported = import_rollouts(
                    dataset=dataset,
                    files=opened,
                    agent=agent,
                    policy_model=model,
                    name=options["name"],
                    format=options["format"],
                    on_error=options["on_error"],
                )
            except ImportRefused as refusal:
                for error in refusal.errors:
                    self.stderr.write(str(error))
                raise CommandError(str(refusal)) from None
        for error in imported.errors:
            self.stderr.write(str(error))
        self._tell(imported, as_json=options["json"])

    def _tell(self, imported: Imported, *, as_json: bool) -> None:
        collection = imported.collection
        if as_json:
            report = {
                "collection": collection.pk,
                "created": imported.created,
                "rollouts": collection.total,
                "completed": collection.completed,
                "failed": collection.failed,
                "mean_reward": collection.mean_reward,
                "refused": imported.refused,
                "superseded": imported.superseded,
                "renumbered": imported.renumbered,
            }
            self.stdout.write(json.dumps(report))
            return
        refused = f", {imported.refused:,} lines refused" if imported.refused else ""
        if imported.superseded:
            refused += f", {imported.superseded:,} failures of attempts that were made again left out"
        if imported.renumbered:
            refused += f", {imported.renumbered:,} of a number that another line has too counted as further ones"
        mean = "none" if collection.mean_reward is None else f"{collection.mean_reward:.4g}"
        what = f"{collection.total:,} rollouts of {collection.version}, mean reward {mean}{refused}"
        earlier = "" if imported.created else " (imported before)"
        self.stdout.write(f"{collection.label}{earlier}: {what}")


def _open(name: str) -> Any:
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}") from None


def _find(model: Any, slug: str) -> Any:
    found = model.objects.filter(slug=slug).first()
    if found is None:
        known = ", ".join(model.objects.values_list("slug", flat=True)[:20]) or "none yet"
        raise CommandError(f"No {model._meta.verbose_name} {slug!r}; there are: {known}.")
    return found
