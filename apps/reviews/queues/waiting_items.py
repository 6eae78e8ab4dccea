"""Count the waiting items of a reviewer by queue, consistently with `item_leases`."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from apps.accounts.models import User
from apps.accounts.permissions import Permission, user_may
from apps.reviews.models import Queue, QueueItem, Review
from apps.reviews.queues.hidden_items import is_whole
from apps.reviews.queues.item_leases import find_free
from apps.rollouts.database_clock import server_now


@dataclass(frozen=True, slots=True)
class Waiting:
    """The work of a reviewer in a queue.

    `left` is the number of reviews the user may still give, including the open item and hidden repeats. Repeats are
    counted from the start, so that the number does not reveal them.
    """

    queue: Queue
    left: int
    is_begun: bool


def read_waiting(user: User, queues: Iterable[Queue] | None = None) -> list[Waiting]:
    """Return open queues with items for this user.

    First queues in which the user has an open item, then queues that name the user, then the oldest. Runs four queries,
    or none if the user may not review.
    """
    if not user_may(user, Permission.REVIEW):
        return []
    asked = Queue.objects.open().for_reviewer(user.pk)
    if queues is not None:
        asked = asked.filter(pk__in=[each.pk for each in queues])
    found = list(asked.order_by("pk"))
    ids = [each.pk for each in found]
    holding = Review.objects.filter(slot__isnull=False).filter(
        Q(status=Review.Status.SUBMITTED) | Q(status=Review.Status.OPEN, leased_until__gte=server_now())
    )
    free = find_free(user, holding).filter(queue__in=ids).order_by().values_list("queue")
    left = Counter(dict(free.annotate(rows=Count("pk") + Count("pk", filter=Q(is_repeated=True)))))
    mine = Review.objects.filter(is_whole("item"), queue__in=ids, reviewer=user, is_adjudication=False)
    held, due = Counter[int](), Counter[int]()
    first = Q(repeat_of__isnull=True)
    counted = (
        mine.order_by()
        .values_list("queue")
        .annotate(
            held=Count("pk", filter=Q(status=Review.Status.OPEN)),
            again=Count("pk", filter=first & Q(status=Review.Status.OPEN, item__is_repeated=True)),
            due=Count("pk", filter=first & Q(status=Review.Status.SUBMITTED, item__is_repeated=True, repeats=None)),
        )
    )
    for queue, open_now, again, repeats in counted:
        held[queue], due[queue] = open_now, again + repeats
    left += _lapsed(mine, holding)
    waiting = [
        Waiting(queue=each, left=left[each.pk] + held[each.pk] + due[each.pk], is_begun=held[each.pk] > 0)
        for each in found
    ]
    return sorted(
        (each for each in waiting if each.left),
        key=lambda one: (not one.is_begun, not one.queue.named_reviewers, one.queue.pk),
    )


def count_with_others(queue: Queue, user: User) -> int:
    """Return the number of items that need reviews and that this user has not seen.

    If `read_waiting` found none for the user, other reviewers hold them all.
    """
    seen = Review.objects.filter(item=OuterRef("pk"), reviewer=user)
    wanted = {"is_adjudicated": False, "done__lt": queue.overlap}
    return QueueItem.objects.filter(~Exists(seen), is_whole("pk"), queue=queue, **wanted).count()


def count_lapsed(user: User, queues: Iterable[Queue]) -> dict[int, int]:
    """Return the number of this user's lapsed reviews by queue, with one query."""
    mine = Review.objects.filter(is_whole("item"), queue__in=list(queues), reviewer=user, is_adjudication=False)
    lapsed = mine.filter(status=Review.Status.LAPSED).order_by()
    return dict(lapsed.values_list("queue").annotate(number=Count("pk")))


def count_repeated(queue: str) -> Coalesce:
    """Return a query expression for the number of repeated items, by the column with the id of the queue."""
    items = QueueItem.objects.filter(queue=OuterRef(queue), is_repeated=True).order_by().values("queue")
    return Coalesce(Subquery(items.annotate(number=Count("pk")).values("number")), 0)


def _lapsed(mine: QuerySet[Review], holding: QuerySet[Review]) -> Counter[int]:
    """Return the user's expired leases that no other reviewer took."""
    taken = holding.filter(item=OuterRef("item")).order_by().values("item").annotate(number=Count("pk"))
    rows = (
        mine.filter(status=Review.Status.LAPSED, item__is_adjudicated=False)
        .annotate(taken=Coalesce(Subquery(taken.values("number")), 0))
        .filter(taken__lt=F("queue__overlap"))
    )
    return Counter(
        dict(
            rows.order_by()
            .values_list("queue")
            .annotate(rows=Count("pk") + Count("pk", filter=Q(item__is_repeated=True)))
        )
    )
