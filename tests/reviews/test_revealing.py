"""A queue that trains tells what was behind the sides once nothing of it is still to be judged."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.reviews.models import Queue, Review
from apps.reviews.queues.blind_items import reveal
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import QueueRefused, fill_from_sets
from tests.factories import make_collection, make_dataset, make_rollout, make_row
from tests.reviews.queues import annotator, judge, make_queue

pytestmark = pytest.mark.django_db


def test_what_shares_a_rollout_with_an_item_that_is_still_to_be_judged_tells_nothing_yet():
    collection = make_collection(dataset=make_dataset([make_row("1?", "1"), make_row("2?", "2")]))
    task, other = collection.version.tasks.order_by("index")
    one, two, three = (make_rollout(collection, task=task).pk for _ in range(3))
    alone = [make_rollout(collection, task=other).pk for _ in range(2)]
    items = fill_from_sets([[one, two], [one, three], alone], kind="pairwise")
    queue = Queue(name="Training", kind="pairwise", reveals=True, order=Queue.Order.NEWEST)
    queue, ann = create_queue(queue=queue, items=items, user=None), annotator()

    def told(review) -> set[int]:
        return {each["rollout"] for each in reveal(review)}

    third, second = judge(queue, ann), judge(queue, ann)
    assert (told(third), told(second)) == (set(alone), set())
    first = judge(queue, ann)
    assert (told(first), told(second)) == ({one, two}, {one, three})


def test_a_queue_that_reveals_has_no_hidden_repeats_and_one_that_was_made_before_keeps_them_hidden():
    with pytest.raises(QueueRefused, match="A queue that shows results cannot have hidden repeats,") as refused:
        make_queue(reveals=True, repeat_share=0.5)
    assert refused.value.argument == "repeat_share"
    queue, ann = make_queue(pairs=2, repeat_share=0.5), annotator()
    Queue.objects.update(reveals=True)
    queue.refresh_from_db()
    judge(queue, ann)
    judge(queue, ann)
    hidden = Review.objects.get(item__is_repeated=True)
    Review.objects.update(submitted_at=timezone.now() - timedelta(hours=1))
    assert reveal(hidden) == []
    assert len(reveal(judge(queue, ann))) == 2
    assert len(reveal(hidden)) == 2
