"""Write what people said of a collection's rollouts, or what stands between them, as JSON lines."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.keyset_reading import read_by_key
from apps.reviews.agreement.decisions import read_verdicts
from apps.reviews.management.review_lines import tell_comment, tell_flag, tell_score, tell_verdict
from apps.reviews.models import Comment, Flag, Review
from apps.rollouts.models import Collection


class Command(BaseCommand):
    help = "Write the flags, scores or comments on a collection's rollouts, or the verdicts that stand on them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=list(_KINDS))
        parser.add_argument("--collection", type=int, required=True, metavar="ID")
        parser.add_argument("--text", action="store_true", help="in words instead of JSON lines")

    def handle(self, *args: Any, **options: Any) -> None:
        collection = Collection.objects.present().filter(pk=options["collection"]).first()
        if collection is None:
            raise CommandError(f"There is no collection {options['collection']}.")
        for told, words in _KINDS[options["what"]](collection):
            self.stdout.write(words if options["text"] else msgspec.json.encode(told).decode())


def _flags(collection: Collection) -> Iterator[tuple[dict[str, Any], str]]:
    rows = Flag.objects.filter(rollout__collection=collection).select_related("author")
    return map(tell_flag, read_by_key(rows))


def _scores(collection: Collection) -> Iterator[tuple[dict[str, Any], str]]:
    rows = Review.objects.filter(rollout__collection=collection, repeat_of__isnull=True).submitted().exclude(scores={})
    return map(tell_score, read_by_key(rows.select_related("reviewer", "rubric")))


def _comments(collection: Collection) -> Iterator[tuple[dict[str, Any], str]]:
    rows = Comment.objects.filter(rollout__collection=collection).select_related("author", "resolved_by")
    return map(tell_comment, read_by_key(rows))


def _verdicts(collection: Collection) -> Iterator[tuple[dict[str, Any], str]]:
    return map(tell_verdict, read_verdicts(collection).values())


_KINDS: dict[str, Callable[[Collection], Iterator[tuple[dict[str, Any], str]]]] = {
    "verdicts": _verdicts,
    "flags": _flags,
    "scores": _scores,
    "comments": _comments,
}
