from apps.rollouts.models.collections import LARGEST, Collection, CollectionDeletion, CollectionQuerySet
from apps.rollouts.models.figures import KeptFigures
from apps.rollouts.models.reverifications import Reverification, ReverifiedReward
from apps.rollouts.models.rollouts import ALL_TOKENS, HAS_ENDED, Rollout, RolloutQuerySet, TraceEvent
from apps.rollouts.models.throttles import Throttle
from apps.rollouts.models.words import RolloutWords, UnindexedRollout
from apps.rollouts.models.workers import Breaker, Worker

__all__ = [
    "ALL_TOKENS",
    "HAS_ENDED",
    "LARGEST",
    "Breaker",
    "Collection",
    "CollectionDeletion",
    "CollectionQuerySet",
    "KeptFigures",
    "Reverification",
    "ReverifiedReward",
    "Rollout",
    "RolloutQuerySet",
    "RolloutWords",
    "Throttle",
    "TraceEvent",
    "UnindexedRollout",
    "Worker",
]
