"""Write reviews as JSON lines or CSV, to a file or to standard output: of a queue, or what passes the filters."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.gym.pairs.verdicts import CHOICES, CONFIDENCE
from apps.reviews.models import Queue, Review
from apps.reviews.queues.queue_filters import KINDS, narrow_reviews
from apps.reviews.reviews.review_files import FORMATS, record_export

_FILTERS = (
    "queue",
    "collection",
    "rollout",
    "task",
    "task_number",
    "text",
    "reviewer",
    "kind",
    "verdict",
    "confidence",
)


class Command(BaseCommand):
    help = "Write every submitted review of a queue, or all that pass the filters, the oldest first."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queue", type=int, nargs="?", help="all queues, and scores outside of them, if left out")
        parser.add_argument("--format", choices=sorted(FORMATS), default="ndjson")
        parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
        parser.add_argument("--collection", type=int, metavar="ID", help="about a rollout of it")
        parser.add_argument("--rollout", type=int, metavar="ID", help="about it, alone or among others")
        parser.add_argument("--task", type=int, metavar="ID")
        parser.add_argument("--task-number", type=int, metavar="N", help="the task’s place in its version, from 1")
        parser.add_argument("--text", help="words of the task")
        parser.add_argument("--reviewer", metavar="NAME")
        parser.add_argument("--kind", choices=list(KINDS))
        parser.add_argument("--verdict", choices=list(CHOICES), help="in the order in which an item keeps its rollouts")
        parser.add_argument("--confidence", type=int, choices=list(CONFIDENCE))
        parser.add_argument("--status", choices=["any", *Review.Status.values], default=Review.Status.SUBMITTED.value)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["queue"] is not None and not Queue.objects.filter(pk=options["queue"]).exists():
            raise CommandError(f"There is no queue {options['queue']}.")
        wanted = {name: options[name] for name in _FILTERS}
        if options["status"] != "any":
            wanted["status"] = options["status"]
        _, write = FORMATS[options["format"]]
        reviews = narrow_reviews(Review.objects.all(), wanted, reads_all=True)
        record_export(user=None, reviews=reviews, format=options["format"], filters=wanted)
        pieces = write(reviews)
        if options["out"] is None:
            for piece in pieces:
                self.stdout.write(piece.decode(), ending="")
            sys.stdout.flush()
            return
        with options["out"].open("wb") as file:
            for piece in pieces:
                file.write(piece)
