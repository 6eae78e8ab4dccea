"""Make a queue of a collection's rollouts, or of items that are named one by one."""

import json
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.management.people import find_people, find_person
from apps.accounts.permissions import Permission
from apps.reviews.models import Queue, Rubric
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import (
    Item,
    QueueRefused,
    fill_from_collection,
    fill_from_filter,
    fill_from_rollouts,
    fill_from_sets,
)
from apps.rollouts.models import Collection


class Command(BaseCommand):
    help = "Make a queue in which people judge rollouts: by a rubric, in pairs, or ranked."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--kind", choices=Queue.Kind.values, default="pairwise")
        parser.add_argument("--rubric", metavar="SLUG", help="what is scored in a rubric queue")
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--collection", type=int, metavar="ID")
        source.add_argument("--filter", metavar="TEXT", help='as above the table, like "reward:<0.5 tool:bash"')
        source.add_argument("--rollouts", metavar="IDS", help="numbers between commas")
        source.add_argument("--items", metavar="FILE", help="JSON lines, each a list of numbers; - is standard input")
        parser.add_argument("--per-task", type=int, default=1, help="pairs of each task (default 1)")
        parser.add_argument("--size", type=int, default=4, help="rollouts in a ranking (default 4)")
        parser.add_argument("--reviewer", action="append", default=[], metavar="NAME", help="default: any annotator")
        parser.add_argument("--overlap", type=int, default=1, help="people who judge each item (default 1)")
        parser.add_argument("--order", choices=Queue.Order.values, default="random")
        parser.add_argument("--seed", type=int, default=0, help="default: drawn")
        parser.add_argument("--lease-minutes", type=int, default=15)
        parser.add_argument("--repeat-share", type=float, default=0.0, help="share of hidden repeats, up to 0.5")
        parser.add_argument("--instructions", default="")
        for name in ("expected", "reward", "model"):
            parser.add_argument(f"--show-{name}", action="store_true", help=f"reviewers see it: {name}")
        parser.add_argument("--reveal", action="store_true", help="tell rewards and models after submitting")
        parser.add_argument("--by", metavar="NAME", help="whose it is")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        queue = Queue(
            name=options["name"],
            kind=options["kind"],
            rubric=_rubric(options["rubric"]),
            instructions=options["instructions"],
            overlap=options["overlap"],
            order=options["order"],
            seed=options["seed"],
            lease_minutes=options["lease_minutes"],
            repeat_share=options["repeat_share"],
            shows_expected=options["show_expected"],
            shows_reward=options["show_reward"],
            shows_model=options["show_model"],
            reveals=options["reveal"],
        )
        people = find_people(options["reviewer"])
        user = find_person(options["by"], Permission.LEAD) if options["by"] else None
        try:
            made = create_queue(queue=queue, items=_items(queue, options), reviewers=people, user=user)
        except QueueRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        except ValidationError as wrong:
            raise CommandError("; ".join(wrong.messages)) from wrong
        if options["json"]:
            self.stdout.write(json.dumps({"queue": made.pk, "items": made.item_count, "seed": made.seed}))
        else:
            self.stdout.write(f"queue {made.pk}: {made.item_count} items, seed {made.seed}")


def _rubric(slug: str | None) -> Rubric | None:
    if slug is None:
        return None
    rubric = Rubric.objects.filter(slug=slug).first()
    if rubric is None:
        raise CommandError(f"There is no rubric {slug}.")
    return rubric


def _items(queue: Queue, options: dict[str, Any]) -> list[Item]:
    given = {"kind": queue.kind, "per_task": options["per_task"], "size": options["size"], "seed": queue.seed}
    if options["collection"] is not None:
        if not Collection.objects.present().filter(pk=options["collection"]).exists():
            raise CommandError(f"There is no collection {options['collection']}.")
        queue.source = {"collection": options["collection"]}
        return fill_from_collection(options["collection"], **given)
    if options["filter"]:
        queue.source = {"filter": options["filter"]}
        return fill_from_filter(options["filter"], **given)
    if options["rollouts"]:
        return fill_from_rollouts(_numbers(options["rollouts"].split(",")), **given)
    return fill_from_sets(_lines(options["items"]), kind=queue.kind)


def _lines(path: str) -> list[list[int]]:
    with open(0 if path == "-" else path, encoding="utf-8", closefd=path != "-") as file:
        return [_numbers(json.loads(line)) for line in file if line.strip()]


def _numbers(given: list[Any]) -> list[int]:
    try:
        return [int(one) for one in given]
    except (TypeError, ValueError):
        raise CommandError("Rollouts are named by their numbers.") from None
