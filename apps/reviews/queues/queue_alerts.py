"""Alert when all items of a queue are reviewed."""

from apps.alerts.event_outbox import find_subscriptions, record_event
from apps.alerts.models import EventKind
from apps.reviews.models import Queue, QueueItem
from apps.reviews.queues.hidden_items import is_whole
from apps.reviews.queues.item_states import OPEN


def record_if_finished(queue: Queue) -> None:
    """Record an event if no item needs another review. The caller must hold the lock of the queue.

    Items with deleted rollouts do not count. Adding items later allows another event.
    """
    if not find_subscriptions(EventKind.QUEUE_FINISHED):
        return
    if not QueueItem.objects.filter(OPEN, is_whole("pk"), queue=queue).exists():
        record_event(
            EventKind.QUEUE_FINISHED,
            key=f"{queue.pk} {queue.item_count}",
            text=f"All items of the review queue “{queue.name}” are reviewed",
            page=("queue_detail", queue.pk),
            queue=queue.pk,
            name=queue.name,
            items=queue.item_count,
        )
