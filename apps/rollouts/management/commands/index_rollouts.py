"""`manage.py index_rollouts [--again]`: index the words of finished rollouts here and now, without a worker."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.rollouts.models import Collection, Rollout
from apps.rollouts.search.filters.text_search import count_unindexed
from apps.rollouts.search.word_index import index_all, mark_unindexed

CHUNK = 20_000


class Command(BaseCommand):
    help = "Index what waits, so that its texts are found. Workers do so by themselves, behind their other work."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--again", action="store_true", help="first mark all finished rollouts: rebuilds the index")
        parser.add_argument("--collection", type=int, metavar="ID", help="with --again: those of this collection alone")

    def handle(self, **options: Any) -> None:
        if options["again"]:
            self._mark(options["collection"])
        elif options["collection"] is not None:
            raise CommandError("--collection is for --again: what waits is indexed whatever it belongs to.")
        done = 0
        for number in index_all():
            done += number
            self.stdout.write(f"\r{done:,} rollouts indexed", ending="")
            self.stdout.flush()
        left = count_unindexed()
        self.stdout.write(f"\r{done:,} rollouts indexed, {left:,} left" if left else f"\r{done:,} rollouts indexed")

    def _mark(self, collection_id: int | None) -> None:
        rollouts = Rollout.objects.order_by("pk")
        if collection_id is not None:
            if not Collection.objects.present().filter(pk=collection_id).exists():
                raise CommandError(f"There is no collection {collection_id}.")
            rollouts = rollouts.filter(collection=collection_id)
        # By the chunk: one statement over a million rows would stop SQLite's heartbeat.
        first = 0
        while keys := list(rollouts.filter(pk__gt=first).values_list("pk", flat=True)[:CHUNK]):
            mark_unindexed(rollouts.filter(pk__gt=first, pk__lte=keys[-1]))
            first = keys[-1]
