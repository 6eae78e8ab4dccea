"""`manage.py index_rollouts [--again]`: index finished rollouts in this process, without a worker."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.rollouts.models import Collection, Rollout
from apps.rollouts.search.filters.text_search import count_unindexed
from apps.rollouts.search.word_index import index_all, mark_unindexed

CHUNK = 20_000


class Command(BaseCommand):
    help = "Build the text index now. Workers also build it in the background."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--again", action="store_true", help="first mark all finished rollouts: rebuilds the index")
        parser.add_argument(
            "--collection", type=int, metavar="ID", help="with --again: only rollouts of this collection"
        )

    def handle(self, **options: Any) -> None:
        if options["again"]:
            self._mark(options["collection"])
        elif options["collection"] is not None:
            raise CommandError("--collection needs --again.")
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
                raise CommandError(f"Unknown collection {collection_id}.")
            rollouts = rollouts.filter(collection=collection_id)
        # In chunks: one statement over a million rows would stop SQLite's heartbeat.
        first = 0
        while keys := list(rollouts.filter(pk__gt=first).values_list("pk", flat=True)[:CHUNK]):
            mark_unindexed(rollouts.filter(pk__gt=first, pk__lte=keys[-1]))
            first = keys[-1]
