from apps.rollouts.models.collections import MAX_FLOAT, Collection, CollectionDeletion, CollectionQuerySet
from apps.rollouts.models.failure_causes import FailureCause, RolloutCause
from apps.rollouts.models.figures import LAST_SPAN, SPAN_BITS, FigureBlock, FigureMark, KeptFigures
from apps.rollouts.models.otlp_traces import ReceivedSpan, ReceivedTrace
from apps.rollouts.models.rechecks import Recheck, RolloutChange
from apps.rollouts.models.reverifications import Reverification, ReverifiedReward
from apps.rollouts.models.rollouts import ALL_TOKENS, HAS_ENDED, Rollout, RolloutQuerySet, TraceEvent, TraceImage
from apps.rollouts.models.scans import FAILED_WORD, Scan, ScanAnswer
from apps.rollouts.models.server_metrics import ServerMetrics
from apps.rollouts.models.throttles import Throttle
from apps.rollouts.models.words import RolloutWords, UnindexedRollout
from apps.rollouts.models.workers import Breaker, Reservation, Worker

__all__ = [
    "ALL_TOKENS",
    "FAILED_WORD",
    "HAS_ENDED",
    "LAST_SPAN",
    "MAX_FLOAT",
    "SPAN_BITS",
    "Breaker",
    "Collection",
    "CollectionDeletion",
    "CollectionQuerySet",
    "FailureCause",
    "FigureBlock",
    "FigureMark",
    "KeptFigures",
    "ReceivedSpan",
    "ReceivedTrace",
    "Recheck",
    "Reservation",
    "Reverification",
    "ReverifiedReward",
    "Rollout",
    "RolloutCause",
    "RolloutChange",
    "RolloutQuerySet",
    "RolloutWords",
    "Scan",
    "ScanAnswer",
    "ServerMetrics",
    "Throttle",
    "TraceEvent",
    "TraceImage",
    "UnindexedRollout",
    "Worker",
]
