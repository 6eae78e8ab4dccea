"""Build the preference pairs of one or more collections, or count what a rule would make."""

import json
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.management.people import find_person
from apps.accounts.management.spec_arguments import add_arguments, find_row, given_options
from apps.accounts.permissions import Permission
from apps.gym.pairs.pair_rule import Rule, RuleRefused, check_rule
from apps.pairs.models import PairSet
from apps.pairs.pair_counts import NewPair, count_pairs
from apps.pairs.pair_sets import PairingRefused, PairOrder, build_pairs, queue_pair_set
from apps.rollouts.models import Collection


class Command(BaseCommand):
    help = "Pair better with worse attempts at the same task, by one rule; what people judged overrides rewards."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--collection", type=int, required=True, action="append", metavar="ID", help="may be given several times"
        )
        add_arguments(parser, PairOrder, leave=["collection", "further", "rule", "keeps_decisions"])
        add_arguments(parser, Rule)
        parser.add_argument("--forget-decisions", action="store_true", help="take none over from the version before")
        parser.add_argument("--count", action="store_true", help="only count what would be made")
        parser.add_argument("--queue", action="store_true", help="leave the making to a worker")
        parser.add_argument("--preview", type=int, default=0, metavar="N", help="with --count: the first N pairs, too")
        parser.add_argument("--by", metavar="NAME", help="whose set it is")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        collections = [find_row(Collection, pk) for pk in dict.fromkeys(options["collection"])]
        rule = Rule(**given_options(Rule, options))
        if options["count"]:
            self._count(collections, rule, keep=options["preview"], as_json=options["json"])
            return
        order = PairOrder(
            collection=collections[0],
            further=collections[1:],
            rule=rule,
            name=options.get("name", ""),
            keeps_decisions=not options["forget_decisions"],
        )
        user = find_person(options["by"], Permission.PAIR) if options["by"] else None
        try:
            pair_set = (queue_pair_set if options["queue"] else build_pairs)(order, user=user)
        except PairingRefused as refusal:
            raise CommandError(f"--{refusal.argument.replace('_', '-')}: {refusal}") from refusal
        if pair_set.state == PairSet.State.FAILED:
            raise CommandError(pair_set.message)
        self._report(pair_set, as_json=options["json"])

    def _report(self, pair_set: PairSet, *, as_json: bool) -> None:
        found = {
            "pair_set": pair_set.pk,
            "name": pair_set.name,
            "version": pair_set.version,
            "state": pair_set.state,
            "pairs": pair_set.pair_count,
            "sources": pair_set.sources,
            "groups": pair_set.counts,
            "excluded": pair_set.excluded,
        }
        if as_json:
            self.stdout.write(json.dumps(found))
            return
        what = f"{pair_set.pair_count} pairs" if pair_set.state == PairSet.State.READY else pair_set.state
        self.stdout.write(f"{pair_set} ({pair_set.title}): {what}")
        self._tell(pair_set.counts, pair_set.excluded)

    def _count(self, collections: list[Collection], rule: Rule, *, keep: int, as_json: bool) -> None:
        try:
            check_rule(rule)
        except RuleRefused as refusal:
            raise CommandError(f"--{refusal.field.replace('_', '-')}: {refusal}") from refusal
        found = count_pairs(collections, rule, seconds=None, keep=max(0, keep))
        counts = found.counts
        if as_json:
            told = msgspec.to_builtins(counts)
            self.stdout.write(json.dumps({**told, "first": [_show(one) for one in found.pairs]} if keep else told))
            return
        self.stdout.write(f"{counts.pairs} pairs of {counts.considered} rollouts")
        self._tell(counts.groups, counts.excluded)
        for each in map(_show, found.pairs):
            margin = "" if each["margin"] is None else ", margin {margin}"
            self.stdout.write(("  task {task}: {chosen} over {rejected}" + margin + ", by {source}").format(**each))

    def _tell(self, groups: dict[str, int], excluded: dict[str, int]) -> None:
        for outcome, count in groups.items():
            self.stdout.write(f"  {outcome.replace('_', ' ')}: {count}")
        for reason, count in excluded.items():
            self.stdout.write(f"  not used, {reason.replace('_', ' ')}: {count}")


def _show(pair: NewPair) -> dict[str, Any]:
    made = pair.pair
    return {
        "task": pair.task_id,
        "chosen": made.chosen,
        "rejected": made.rejected,
        "chosen_reward": pair.chosen.reward,
        "rejected_reward": pair.rejected.reward,
        "margin": made.margin,
        "source": made.source,
        "turn": made.turn,
    }
