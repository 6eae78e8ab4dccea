"""List queues: what they ask, how far they are, and what waits for somebody."""

from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandParser
from django.db.models import Count, Q

from apps.accounts.management.people import find_person
from apps.accounts.permissions import Permission
from apps.reviews.models import Queue, Review
from apps.reviews.queues.waiting_items import read_waiting

_TOLD = (
    *("name", "kind", "instructions", "overlap", "order", "seed", "lease_minutes", "shows_expected", "shows_reward"),
    *("shows_model", "reveals", "repeat_share", "named_reviewers", "item_count", "is_open", "source", "created_at"),
)


class Command(BaseCommand):
    help = "List the queues, the oldest first."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--kind", choices=Queue.Kind.values)
        state = parser.add_mutually_exclusive_group()
        state.add_argument("--open", action="store_true", help="only those that give out items")
        state.add_argument("--closed", action="store_true", help="only those that do not")
        state.add_argument("--waiting-for", metavar="NAME", help="only those with something for this person to review")
        parser.add_argument("--json", action="store_true", help="print a JSON object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        # Those of an item that came twice are no reviews more.
        given = Q(reviews__status=Review.Status.SUBMITTED, reviews__is_adjudication=False, reviews__repeat_of=None)
        queues = Queue.objects.select_related("rubric").annotate(done=Count("reviews", filter=given)).order_by("pk")
        if options["kind"]:
            queues = queues.filter(kind=options["kind"])
        if options["open"] or options["closed"]:
            queues = queues.filter(closed_at__isnull=options["open"])
        left: dict[int, int] | None = None
        if options["waiting_for"]:
            person = find_person(options["waiting_for"], Permission.REVIEW)
            left = {each.queue.pk: each.left for each in read_waiting(person)}
            queues = queues.filter(pk__in=left)
        for queue in queues:
            self.stdout.write(_tell(queue, left, as_json=options["json"]))


def _tell(queue: Any, left: dict[int, int] | None, *, as_json: bool) -> str:
    waits = {} if left is None else {"left": left[queue.pk]}
    if as_json:
        told = {name: getattr(queue, name) for name in _TOLD}
        rubric = queue.rubric.slug if queue.rubric else None
        rest = {"rubric": rubric, "reviews": queue.done, **waits}
        return msgspec.json.encode({"queue": queue.pk, **told, **rest}).decode()
    left_for = f", {left[queue.pk]} left" if left is not None else ""
    words = f"{queue.pk}: {queue.name}, {queue.kind}, {'open' if queue.is_open else 'closed'}"
    many = f"{queue.item_count} items, {queue.done} of {queue.item_count * queue.overlap} reviews"
    return f"{words}, {many}{left_for}"
