"""`manage.py rubrics`: what people are asked to score."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.management.people import find_person
from apps.accounts.permissions import Permission
from apps.reviews.models import Rubric
from apps.reviews.reviews.rubric_changes import RubricInUse, delete_rubric, save_rubric


class Command(BaseCommand):
    help = "List, show, create, change and delete rubrics. Once one is used its criteria stay."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listed = actions.add_parser("list", help="all of them")
        shown = actions.add_parser("show", help="one with its criteria, as create takes them")
        created = actions.add_parser("create", help="a new one")
        changed = actions.add_parser("change", help="its name, description or, while nobody uses it, its criteria")
        deleted = actions.add_parser("delete", help="while nobody uses it")
        for action in (shown, created, changed, deleted):
            action.add_argument("slug")
        for action, needed in ((created, True), (changed, False)):
            action.add_argument("--name", required=needed)
            action.add_argument(
                "--criteria",
                metavar="FILE",
                required=needed,
                help="a JSON list of objects with key, label and kind; - is standard input",
            )
            action.add_argument("--description")
        for action in (created, changed, deleted):
            action.add_argument("--by", required=True, metavar="NAME", help="who says so")
        for action in (listed, shown, created, changed, deleted):
            action.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            told, words = _list() if options["action"] == "list" else _act(options)
        except RubricInUse as refusal:
            raise CommandError(str(refusal)) from refusal
        except ValidationError as wrong:
            raise CommandError("; ".join(wrong.messages)) from wrong
        self.stdout.write(json.dumps(told, ensure_ascii=False) if options["json"] else words)


def _act(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    slug, action = options["slug"], options["action"]
    user = None if action == "show" else find_person(options["by"], Permission.LEAD)
    if action == "create":
        if Rubric.objects.filter(slug=slug).exists():
            raise CommandError(f"There is a rubric {slug} already.")
        rubric = Rubric(slug=slug, created_by=user)
    else:
        found = Rubric.objects.filter(slug=slug).first()
        if found is None:
            raise CommandError(f"There is no rubric {slug}.")
        rubric = found
    if action == "show":
        return _tell(rubric), json.dumps(rubric.criteria, ensure_ascii=False, indent=2)
    if action == "delete":
        delete_rubric(rubric=rubric, user=user)
        return {"deleted": slug}, f"{slug} is deleted"
    for name in ("name", "description"):
        if options[name] is not None:
            setattr(rubric, name, options[name])
    if options["criteria"] is not None:
        rubric.criteria = _criteria(options["criteria"])
    save_rubric(rubric=rubric, user=user)
    return _tell(rubric), _line(rubric)


def _list() -> tuple[dict[str, Any], str]:
    rubrics = list(Rubric.objects.order_by("slug"))
    told = {"rubrics": [_tell(each) for each in rubrics]}
    return told, "\n".join(map(_line, rubrics)) or "There are no rubrics."


def _tell(rubric: Rubric) -> dict[str, Any]:
    return {name: getattr(rubric, name) for name in ("slug", "name", "description", "criteria")}


def _line(rubric: Rubric) -> str:
    return f"{rubric.slug}: {rubric.name}, {', '.join(rubric.keys)}"


def _criteria(path: str) -> Any:
    try:
        with open(0 if path == "-" else path, encoding="utf-8", closefd=path != "-") as file:
            return json.load(file)
    except (OSError, ValueError) as wrong:
        raise CommandError(f"{path} is no JSON file: {wrong}.") from wrong
