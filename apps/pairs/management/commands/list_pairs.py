"""List pair sets, the pairs of one, or what was decided or said of a pair."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.keyset_reading import read_by_key
from apps.pairs.models import PairDecision, PairSet, PreferencePair
from apps.pairs.pair_search import FLAGS, find_close, flag_pairs, flags_of
from apps.pairs.provenance import Opinion, read_opinions, say_opinion, say_verdict

_OF_SETS = ("collection", "name", "state")
_OF_PAIRS = ("status", "source", "flag", "task", "below_margin")


class Command(BaseCommand):
    help = "List the pair sets; with the number of one its pairs; with --pair what was decided of that pair."

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("pair_set", type=int, nargs="?", metavar="ID")
        which.add_argument("--pair", type=int, metavar="ID", help="what was decided of it, the first decision first")
        parser.add_argument(
            "--reviews", action="store_true", help="with --pair: the reviews its verdict was read in instead"
        )
        sets = parser.add_argument_group("of the sets only those")
        sets.add_argument("--collection", type=int, metavar="ID", help="of this collection")
        sets.add_argument("--name", help="of this name: its versions")
        sets.add_argument("--state", choices=PairSet.State.values)
        pairs = parser.add_argument_group("of a set's pairs only those")
        pairs.add_argument("--status", choices=PreferencePair.Status.values)
        pairs.add_argument("--source", choices=PreferencePair.Source.values, help="of this origin")
        pairs.add_argument("--flag", choices=FLAGS, help="that want a look, for this")
        pairs.add_argument("--task", type=int, metavar="ID", help="of this task")
        pairs.add_argument("--below-margin", type=float, metavar="M", help="made by rewards, of a smaller margin")
        parser.add_argument("--json", action="store_true", help="print a JSON object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = self._rows(options)
        for told, words in rows:
            self.stdout.write(msgspec.json.encode(told).decode() if options["json"] else words)

    def _rows(self, options: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
        listed = options["pair_set"] is None
        _refuse(options, _OF_SETS if options["pair"] is not None or not listed else ())
        _refuse(options, _OF_PAIRS if listed else ())
        if options["reviews"] and options["pair"] is None:
            raise CommandError("--reviews goes with --pair.")
        if options["pair"] is not None:
            pair = PreferencePair.objects.select_related("pair_set").filter(pk=options["pair"]).first()
            if pair is None:
                raise CommandError(f"There is no pair {options['pair']}.")
            if options["reviews"]:
                return map(_tell_opinion, read_opinions(pair))
            if not options["json"] and not pair.decisions.exists():
                self.stdout.write(f"Nobody has decided of pair {pair.pk}: it is {pair.status}.")
            decisions = PairDecision.objects.filter(pair=options["pair"]).select_related("user")
            return map(_tell_decision, read_by_key(decisions))
        if listed:
            given = {name: options[name] for name in _OF_SETS if options[name] is not None}
            return map(_tell_set, read_by_key(PairSet.objects.filter(**given)))
        if not PairSet.objects.filter(pk=options["pair_set"]).exists():
            raise CommandError(f"There is no pair set {options['pair_set']}.")
        pairs = PreferencePair.objects.filter(pair_set=options["pair_set"]).select_related("chosen", "rejected")
        for name in ("status", "source", "task"):
            pairs = pairs.filter(**{name: options[name]}) if options[name] is not None else pairs
        if options["below_margin"] is not None:
            pairs = find_close(pairs, options["below_margin"])
        if options["flag"]:
            pairs = flag_pairs(pairs, options["flag"])
        return map(_tell_pair, read_by_key(pairs))


def _refuse(options: dict[str, Any], names: Iterable[str]) -> None:
    """An option that would change nothing is a mistake."""
    for name in names:
        if options[name] is not None:
            raise CommandError(f"--{name.replace('_', '-')} does not go with what you list.")


def _tell_set(one: PairSet) -> tuple[dict[str, Any], str]:
    told = {
        "pair_set": one.pk,
        "name": one.name,
        "version": one.version,
        "collection": one.collection_id,
        "rule": one.rule,
        "rule_digest": one.rule_digest,
        "state": one.state,
        "pairs": one.pair_count,
        "sources": one.sources,
        "message": one.message,
        "at": one.created_at,
    }
    return told, f"{one.pk}: {one.title}, of collection {one.collection_id}, {one.state}, {one.pair_count} pairs"


def _tell_pair(pair: PreferencePair) -> tuple[dict[str, Any], str]:
    flags = flags_of(pair)
    told = {
        "pair": pair.pk,
        "task": pair.task_id,
        "chosen": pair.chosen_id,
        "rejected": pair.rejected_id,
        "rewards": pair.rewards,
        "verifier_rewards": pair.verifier_rewards,
        "lengths": [pair.chosen_length, pair.rejected_length],
        "margin": pair.margin,
        "turn": pair.turn,
        "source": pair.source,
        "strength": pair.strength,
        "reviewers": pair.reviewers,
        "agreeing": pair.agreeing,
        "agreement": pair.agreement,
        "adjudicated": pair.adjudicated,
        "reviews": pair.reviews,
        "status": pair.status,
        "flags": flags,
    }
    wants = f", {', '.join(flags)}".replace("_", " ") if flags else ""
    margin = "" if pair.margin is None else f", margin {pair.margin:g}"
    words = f"{pair.pk}: {pair.chosen_id} over {pair.rejected_id}{margin}, by {pair.source}"
    verdict = say_verdict(pair)
    return told, f"{words}{f' ({verdict})' if verdict else ''}, {pair.status}{wants}"


def _tell_decision(decision: PairDecision) -> tuple[dict[str, Any], str]:
    who = decision.user.username if decision.user else None
    told = {
        "status": decision.status,
        "reason": decision.reason,
        "by": who,
        "carried": decision.carried,
        "at": decision.created_at,
    }
    how = " (taken over from the version before)" if decision.carried else ""
    why = f": {decision.reason}" if decision.reason else ""
    return told, f"{decision.status} by {who or 'nobody'}, {decision.created_at.isoformat()}{how}{why}"


def _tell_opinion(opinion: Opinion) -> tuple[dict[str, Any], str]:
    told = {name: getattr(opinion, name) for name in opinion.__struct_fields__ if name != "queue_name"}
    what = "adjudication" if opinion.is_adjudication else "review"
    when = f", {opinion.submitted_at.isoformat()}" if opinion.submitted_at else ""
    where = f" in queue {opinion.queue}" if opinion.queue else ""
    who = opinion.reviewer or "someone who left"
    return told, f"{what} {opinion.review}{where} by {who}{when}: {say_opinion(opinion)}"
