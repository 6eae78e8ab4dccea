"""What people say of rollouts, and the queues in which they are asked."""

from apps.reviews.models.annotations import Comment, Flag, RewardOverride
from apps.reviews.models.queues import ItemRollout, Queue, QueueItem, QueueReviewer
from apps.reviews.models.reviews import PairVerdict, Review
from apps.reviews.models.rubrics import Rubric

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
