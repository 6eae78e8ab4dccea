"""A queue in which somebody submits something cannot be deleted, nor at the same moment."""

from threading import Barrier, Thread

import pytest
from django.db import connection

from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_leases import CannotReview, claim_item
from apps.reviews.queues.queue_changes import close_queue, delete_queue
from apps.reviews.queues.queue_items import QueueRefused
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.submission import submit_review
from tests.reviews.queues import annotator, claim, make_queue, say

ROUNDS = 12


@pytest.mark.django_db(transaction=True)
def test_a_review_submitted_during_deletion_is_kept_or_refused(migrated):
    """On SQLite one waits for the other anyway."""
    ended = set()
    for number in range(ROUNDS):
        queue, ann = make_queue(pairs=1), annotator()
        review, both, said = claim(queue, ann), Barrier(2), {}

        def submit(review=review, ann=ann, both=both, said=said):
            both.wait()
            submit_review(review=review, user=ann, token="t", answer=Answer(choice="a"))
            said["submitted"] = True

        def delete(queue=queue, both=both, said=said):
            both.wait()
            delete_queue(queue=queue, user=None)
            said["deleted"] = True

        def run(work, said=said):
            try:
                work()
            except Exception as error:
                said[work.__name__] = type(error)
            finally:
                connection.close()

        threads = [Thread(target=run, args=[work]) for work in ((submit, delete) if number % 2 else (delete, submit))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = Review.objects.filter(pk=review.pk, status="submitted").count()
        ended.add((*sorted(said.items(), key=str), left, Queue.objects.filter(pk=queue.pk).count()))
    kept = (("delete", QueueRefused), ("submitted", True), 1, 1)
    gone = (("deleted", True), ("submit", CannotReview), 0, 0)
    assert ended <= {kept, gone}


@pytest.mark.django_db
def test_reviews_after_the_deletion_are_refused():
    queue, ann = make_queue(pairs=1), annotator()
    review = claim(queue, ann)
    Queue.objects.get(pk=queue.pk).delete()
    with pytest.raises(CannotReview, match="deleted"):
        say(review)
    with pytest.raises(CannotReview, match="deleted"):
        claim_item(queue=queue, user=ann)
    for change in (close_queue, delete_queue):
        with pytest.raises(QueueRefused, match="was deleted"):
            change(queue=queue, user=None)
