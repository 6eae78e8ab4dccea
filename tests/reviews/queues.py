"""Queues with rollouts in them, and reviewers who say things."""

from itertools import count
from typing import Any

from apps.accounts.models import Role, User
from apps.reviews.models import Queue, Review, Rubric
from apps.reviews.queues.item_leases import claim_item
from apps.reviews.queues.queue_changes import create_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.submission import submit_review
from tests.factories import make_collection, make_dataset, make_rollout, make_row, make_user

_numbers = count(1)
CRITERIA = [
    {"key": "right", "label": "Is it right?", "kind": "boolean"},
    {"key": "clear", "label": "How clear is it?", "kind": "numeric", "minimum": 1, "maximum": 5},
    {"key": "why", "label": "Why?", "kind": "text"},
]


def make_rubric(**fields: Any) -> Rubric:
    number = next(_numbers)
    return Rubric.objects.create(**{"slug": f"rubric-{number}", "name": "Rubric", "criteria": CRITERIA, **fields})


def make_queue(*, pairs: int = 3, size: int = 2, reviewers: list[User] | None = None, **fields: Any) -> Queue:
    """A queue of so many items, each with `size` rollouts of a task of its own, in one collection."""
    dataset = make_dataset([make_row(f"What is {n} + 2?", str(n + 2)) for n in range(pairs)])
    collection = make_collection(dataset=dataset)
    tasks = list(collection.version.tasks.order_by("index"))
    sets = [
        [make_rollout(collection, task=task, reward=float(place == 0)).pk for place in range(size)] for task in tasks
    ]
    kind = {1: "rubric", 2: "pairwise"}.get(size, "ranking")
    queue = Queue(**{"name": "Queue", "kind": kind, "seed": 7, **fields})
    if kind == "rubric" and queue.rubric is None:
        queue.rubric = make_rubric()
    return create_queue(queue=queue, items=fill_from_sets(sets, kind=kind), reviewers=reviewers or [], user=None)


def annotator(**fields: Any) -> User:
    return make_user(Role.ANNOTATOR, **fields)


def claim(queue: Queue, user: User) -> Review:
    review = claim_item(queue=queue, user=user)
    assert review is not None
    return review


def say(review: Review, choice: str = "a", *, token: str = "", **answer: Any) -> Review:
    assert review.reviewer is not None
    given = {"choice": choice} if not answer.keys() & {"ranks", "scores"} else {}
    return submit_review(
        review=review,
        user=review.reviewer,
        token=token or f"token-{next(_numbers)}",
        answer=Answer(**{**given, **answer}),
    )


def judge(queue: Queue, user: User, choice: str = "a", **answer: Any) -> Review:
    """Claim and submit."""
    return say(claim(queue, user), choice, **answer)
