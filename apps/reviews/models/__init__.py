"""Review queues, reviews, and annotations of rollouts."""

from apps.reviews.models.annotations import Comment, Flag, RewardOverride
from apps.reviews.models.queues import ItemRollout, Queue, QueueItem, QueueReviewer, Rubric
from apps.reviews.models.reviews import PairVerdict, Review

__all__ = [
    "Comment",
    "Flag",
    "ItemRollout",
    "PairVerdict",
    "Queue",
    "QueueItem",
    "QueueReviewer",
    "Review",
    "RewardOverride",
    "Rubric",
]
