"""Lead a pair set: what changed since an earlier version, people who are asked about its pairs, its end."""

import argparse
from argparse import ArgumentParser
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.management.people import find_person
from apps.accounts.permissions import Permission
from apps.pairs.models import PairSet
from apps.pairs.pair_queues import MOST, USUAL, ask_people
from apps.pairs.pair_sets import CannotCancel, PairSetInUse, cancel_pair_set, delete_pair_set
from apps.pairs.set_differences import NothingToCompare, compare_pair_sets
from apps.reviews.queues.queue_items import QueueRefused


class Command(BaseCommand):
    help = "Tell what changed since an earlier version of a pair set, have people judge its pairs, cancel or delete it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("pair_set", type=int, metavar="ID")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        changes = actions.add_parser("changes", help="pairs and settings that differ from the version before")
        changes.add_argument("--since", type=int, metavar="VERSION", help="another earlier version")
        ask = actions.add_parser("ask", help="a queue of proposed pairs, those of the smallest margin first")
        ask.add_argument("--name", default="", help="of the queue (default: after the set)")
        ask.add_argument("--limit", type=int, default=USUAL, help=f"pairs at most, up to {MOST:,} (default {USUAL})")
        ask.add_argument("--overlap", type=int, default=1, help="people who judge each pair (default 1)")
        cancel = actions.add_parser("cancel", help="stop making it")
        delete = actions.add_parser("delete", help="with its pairs and what was decided of them")
        for action in (ask, cancel, delete):
            action.add_argument("--by", required=True, metavar="NAME", help="who says so")
        for action in actions.choices.values():
            # Without a default of its own: that would hide the one that was given before the action.
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as before the action")

    def handle(self, *args: Any, **options: Any) -> None:
        pair_set = PairSet.objects.select_related("collection").filter(pk=options["pair_set"]).first()
        if pair_set is None:
            raise CommandError(f"There is no pair set {options['pair_set']}.")
        try:
            told, words = _act(pair_set, options)
        except (NothingToCompare, QueueRefused, CannotCancel, PairSetInUse) as refusal:
            raise CommandError(str(refusal)) from refusal
        except ValidationError as wrong:
            raise CommandError("; ".join(wrong.messages)) from wrong
        self.stdout.write(msgspec.json.encode(told).decode() if options["json"] else words)


def _act(pair_set: PairSet, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    match options["action"]:
        case "changes":
            return _tell_changes(pair_set, options["since"])
        case "ask":
            queue = ask_people(
                pair_set=pair_set,
                name=options["name"],
                limit=options["limit"],
                overlap=options["overlap"],
                user=find_person(options["by"], Permission.LEAD),
            )
            return {
                "queue": queue.pk,
                "items": queue.item_count,
            }, f"queue {queue.pk}: {queue.item_count} pairs to judge"
        case "cancel":
            cancelled = cancel_pair_set(pair_set=pair_set, user=find_person(options["by"], Permission.PAIR))
            return {"pair_set": cancelled.pk, "state": cancelled.state}, f"{cancelled.title} is {cancelled.state}"
    delete_pair_set(pair_set=pair_set, user=find_person(options["by"], Permission.PAIR))
    return {"deleted": options["pair_set"]}, f"{pair_set.title} is deleted"


def _tell_changes(pair_set: PairSet, since: int | None) -> tuple[dict[str, Any], str]:
    changes = compare_pair_sets(pair_set, since=since)
    counts = {name: getattr(changes, name) for name in ("kept", "turned", "added", "removed")}
    lines = [
        f"{pair_set.title} since v{changes.one.version}: {counts['added']} added, {counts['removed']} removed, "
        f"{counts['kept']} kept, {counts['turned']} turned round"
    ]
    lines += [f"  {name} was {before}, is {after}" for name, (before, after) in sorted(changes.settings.items())]
    told = {"before": changes.one.pk, "after": pair_set.pk, **counts, "settings": changes.settings}
    return told, "\n".join(lines)
