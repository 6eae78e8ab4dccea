"""Build the preference pairs of a collection."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.exports.pairing import PairingRefused, build_pairs
from apps.rollouts.models import Collection


class Command(BaseCommand):
    help = "Pair the best with the worst attempt of every task of a collection."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--collection", type=int, required=True, metavar="ID")
        parser.add_argument("--margin", type=float, default=0.1, help="least difference of rewards (default 0.1)")
        parser.add_argument("--min-chosen-reward", type=float, metavar="R", help="least reward of the better one")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        collection = Collection.objects.present().filter(pk=options["collection"]).first()
        if collection is None:
            raise CommandError(f"There is no collection {options['collection']}.")
        try:
            pair_set = build_pairs(
                collection=collection, margin=options["margin"], min_chosen_reward=options["min_chosen_reward"]
            )
        except PairingRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        if options["json"]:
            found = {"pair_set": pair_set.pk, "pairs": pair_set.pair_count, "groups": pair_set.counts}
            self.stdout.write(json.dumps(found))
            return
        self.stdout.write(f"{pair_set}: {pair_set.pair_count} pairs")
        for outcome, count in pair_set.counts.items():
            self.stdout.write(f"  {outcome.replace('_', ' ')}: {count}")
