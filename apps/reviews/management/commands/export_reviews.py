"""Write the submitted reviews of a queue as JSON lines or CSV, to a file or to standard output."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.reviews.handing_over import FORMATS
from apps.reviews.models import Queue


class Command(BaseCommand):
    help = "Write every submitted review of a queue, the oldest first."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queue", type=int)
        parser.add_argument("--format", choices=sorted(FORMATS), default="ndjson")
        parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        queue = Queue.objects.select_related("rubric").filter(pk=options["queue"]).first()
        if queue is None:
            raise CommandError(f"There is no queue {options['queue']}.")
        _, write = FORMATS[options["format"]]
        if options["out"] is None:
            for piece in write(queue):
                self.stdout.write(piece.decode(), ending="")
            sys.stdout.flush()
            return
        with options["out"].open("wb") as file:
            for piece in write(queue):
                file.write(piece)
