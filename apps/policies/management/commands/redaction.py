"""`manage.py redaction`: what this installation takes for a credential besides the built-in rules."""

import argparse
import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from apps.policies.installation_redactor import fresh_redactor
from apps.policies.models import RedactionPattern
from apps.policies.redaction_patterns import delete_pattern, save_pattern


class Command(BaseCommand):
    help = "List, add and delete redaction patterns, and try a text. Workers go by a change within seconds."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listed = actions.add_parser("list", help="the patterns that people added")
        added = actions.add_parser("add", help="a pattern more; what is stored already stays as it is")
        deleted = actions.add_parser("delete", help="a pattern less; what was redacted by it stays so")
        tried = actions.add_parser("try", help="what redaction makes of standard input")
        for action in (added, deleted):
            action.add_argument("kind", choices=RedactionPattern.Kind.values)
            action.add_argument("text")
        added.add_argument(
            "--least", type=int, default=16, metavar="N", help="characters that follow a prefix at least (default: 16)"
        )
        for action in (listed, added, deleted, tried):
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["action"]:
            case "add":
                self._add(options)
            case "delete":
                self._delete(options)
            case "try":
                clean, counts = fresh_redactor().redact_text(sys.stdin.read())
                found = ", ".join(f"{kind} × {number}" for kind, number in counts.items()) or "Nothing was found."
                self.stdout.write(_json({"clean": clean, "counts": counts}) if _wants_json(options) else clean)
                if not _wants_json(options):
                    self.stderr.write(found)
                return
        patterns = list(RedactionPattern.objects.all())
        if _wants_json(options):
            rows = [{"kind": each.kind, "text": each.text, "least": each.least} for each in patterns]
            self.stdout.write(_json({"patterns": rows}))
            return
        for each in patterns:
            self.stdout.write(f"{each.kind:10}{each.text}{f'  +{each.least}' if each.kind == 'prefix' else ''}")
        if not patterns:
            self.stdout.write("There are no patterns besides the built-in rules.")

    def _add(self, options: dict[str, Any]) -> None:
        pattern = RedactionPattern(kind=options["kind"], text=options["text"], least=options["least"])
        try:
            save_pattern(pattern=pattern)
        except ValidationError as wrong:
            raise CommandError(" ".join(wrong.messages)) from wrong

    def _delete(self, options: dict[str, Any]) -> None:
        pattern = RedactionPattern.objects.filter(kind=options["kind"], text=options["text"].strip()).first()
        if pattern is None:
            raise CommandError(f"There is no pattern {options['kind']} {options['text']!r}.")
        delete_pattern(pattern=pattern)


def _wants_json(options: dict[str, Any]) -> bool:
    return bool(options.get("json"))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
