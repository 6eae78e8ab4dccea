"""Accept or reject pairs of a pair set, take that back, or tell how its pairs stand."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Count

from apps.accounts.management.people import find_person
from apps.accounts.permissions import Permission
from apps.pairs.models import PairSet, PreferencePair
from apps.pairs.pair_decisions import DecisionRefused, decide_pairs
from apps.pairs.pair_search import find_close

_STATUSES = {
    "accept": PreferencePair.Status.ACCEPTED,
    "reject": PreferencePair.Status.REJECTED,
    "propose": PreferencePair.Status.PROPOSED,
}
CHUNK = 1_000


class Command(BaseCommand):
    help = "Accept or reject pairs of a pair set; propose takes that back; show only tells how many stand how."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pair_set", type=int, metavar="ID")
        parser.add_argument("action", choices=[*_STATUSES, "show"])
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--pair", type=int, action="append", metavar="ID", help="may be given several times")
        which.add_argument("--all", action="store_true", help="every pair that the other options leave")
        parser.add_argument("--source", choices=PreferencePair.Source.values, help="only those of this origin")
        parser.add_argument(
            "--below-margin", type=float, metavar="M", help="only those that rewards made by a smaller margin"
        )
        parser.add_argument("--reason", default="", help="why; needed to reject")
        parser.add_argument("--by", metavar="NAME", help="who decides; needed but to show")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        pair_set = PairSet.objects.filter(pk=options["pair_set"]).first()
        if pair_set is None:
            raise CommandError(f"There is no pair set {options['pair_set']}.")
        changed, spared = (0, 0) if options["action"] == "show" else self._decide(pair_set, options)
        counted = PreferencePair.objects.filter(pair_set=pair_set).order_by().values_list("status")
        stand = {**dict.fromkeys(PreferencePair.Status.values, 0), **dict(counted.annotate(number=Count("pk")))}
        if options["json"]:
            self.stdout.write(json.dumps({"pair_set": pair_set.pk, "changed": changed, "spared": spared, **stand}))
            return
        told = ", ".join(f"{number} {status}" for status, number in stand.items())
        kept = f", {spared} that people chose left as they are: they have no margin" if spared else ""
        self.stdout.write(f"{pair_set.title}: {changed} changed{kept}; {told}")

    def _decide(self, pair_set: PairSet, options: dict[str, Any]) -> tuple[int, int]:
        """How many were changed, and how many a margin was asked of that have none."""
        user = find_person(options["by"], Permission.PAIR)
        if not options["pair"] and not options["all"]:
            raise CommandError("Say which: --pair ID, or --all.")
        pairs = PreferencePair.objects.filter(pair_set=pair_set)
        if options["pair"]:
            wanted = set(options["pair"])
            pairs = pairs.filter(pk__in=wanted)
            if missing := sorted(wanted - set(pairs.values_list("pk", flat=True))):
                raise CommandError(f"{pair_set.title} has no pair {missing[0]}.")
        spared = 0
        if options["source"]:
            pairs = pairs.filter(source=options["source"])
        if options["below_margin"] is not None:
            spared = pairs.filter(margin__isnull=True).count()
            pairs = find_close(pairs, options["below_margin"])
        status, reason, changed, last = _STATUSES[options["action"]], options["reason"], 0, 0
        try:
            while chunk := list(pairs.filter(pk__gt=last).order_by("pk")[:CHUNK]):
                changed += decide_pairs(pairs=chunk, status=status, reason=reason, user=user)
                last = chunk[-1].pk
        except DecisionRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        return changed, spared
