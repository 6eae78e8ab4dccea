"""States of queue items, as query conditions and for a single item."""

from django.db.models import (
    BooleanField,
    Count,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextChoices,
)
from django.db.models.functions import Coalesce

from apps.reviews.models import QueueItem, Review
from apps.reviews.queues.hidden_items import is_whole
from apps.rollouts.database_clock import server_now


class State(TextChoices):
    """States of an item. Several can apply, for example reserved and waiting for another review."""

    WAITING = "waiting", "waiting"
    CLAIMED = "claimed", "reserved"
    DONE = "done", "done"
    DISPUTED = "disputed", "disputed"
    ADJUDICATED = "settled", "adjudicated"
    LOST = "lost", "rollout deleted"


_NOT_ADJUDICATED = Q(is_adjudicated=False)
_HAS_ENOUGH_REVIEWS = Q(done__gte=F("queue__overlap"))
OPEN = _NOT_ADJUDICATED & ~_HAS_ENOUGH_REVIEWS
DISPUTED = _NOT_ADJUDICATED & Q(done__gt=1, doubt__gt=0)


def in_state(items: QuerySet[QueueItem], state: str) -> QuerySet[QueueItem]:
    match State(state):
        case State.ADJUDICATED:
            return items.filter(is_adjudicated=True)
        case State.DONE:
            return items.filter(_NOT_ADJUDICATED, _HAS_ENOUGH_REVIEWS)
        case State.DISPUTED:
            return items.filter(DISPUTED).filter(_HAS_ENOUGH_REVIEWS | Q(is_whole("pk")))
        case State.LOST:
            return items.filter(OPEN).filter(~is_whole("pk"))
        case State.CLAIMED:
            held = _held().filter(item=OuterRef("pk"))
            return items.filter(OPEN).filter(Exists(held), is_whole("pk"))
        case State.WAITING:
            places = _held().filter(item=OuterRef("pk")).order_by().values("item").annotate(number=Count("pk"))
            taken = F("done") + Coalesce(Subquery(places.values("number")), 0)
            return items.filter(OPEN).alias(taken=taken).filter(is_whole("pk"), taken__lt=F("queue__overlap"))


def find_states(item: QueueItem, *, overlap: int, held: int, present: int) -> list[State]:
    """Return the states of an item in the order of the choices.

    It has `held` open reviews and `present` remaining rollouts.
    """
    if item.is_adjudicated:
        return [State.ADJUDICATED]
    is_done = item.done >= overlap
    if not is_done and present < item.size:
        return [State.LOST]
    found = {
        State.WAITING: not is_done and item.done + held < overlap,
        State.CLAIMED: not is_done and held > 0,
        State.DONE: is_done,
        State.DISPUTED: item.done > 1 and item.doubt > 0,
    }
    return [state for state, applies in found.items() if applies]


def with_held(reviews: QuerySet[Review]) -> QuerySet[Review]:
    """Annotate reviews with `is_held`: open and not expired, by the clock of the database."""
    now = Q(status=Review.Status.OPEN, leased_until__gte=server_now())
    return reviews.annotate(is_held=ExpressionWrapper(now, output_field=BooleanField()))


def occupies_slot(review: Review) -> bool:
    """Return True if a review from `with_held` occupies a slot of its item."""
    return bool(getattr(review, "is_held", False)) and review.slot is not None


def _held() -> QuerySet[Review]:
    return Review.objects.filter(status=Review.Status.OPEN, slot__isnull=False, leased_until__gte=server_now())
