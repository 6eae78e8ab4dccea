"""Serializers of queues, their items and figures, and of the requests to create or change them."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers

from apps.accounts.models import User
from apps.accounts.permissions import Permission
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.record_serializers import make_serializer, record_serializer
from apps.api.framework.spec_serializers import spec_serializer
from apps.reviews.agreement.queue_agreement import Agreement
from apps.reviews.agreement.reviewer_figures import Reviewer
from apps.reviews.models import Queue, QueueItem, Rubric
from apps.reviews.queues.queue_items import ItemSource

_SETTINGS = [
    "name",
    "kind",
    "instructions",
    "overlap",
    "order",
    "seed",
    "lease_minutes",
    "shows_expected",
    "shows_reward",
    "shows_model",
    "reveals",
    "repeat_share",
]


_HIDDEN_FROM_ANNOTATORS = ("seed", "repeat_share")


class QueueSerializer(serializers.ModelSerializer[Queue]):
    """A queue. The source of its items is null for annotators."""

    rubric = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    criteria = serializers.ListField(
        source="rubric.criteria", child=serializers.DictField(), read_only=True, default=None, allow_null=True
    )
    is_open = serializers.BooleanField(read_only=True)

    class Meta:
        model = Queue
        fields = ["id", *_SETTINGS, "rubric", "criteria", "named_reviewers", "item_count", "is_open", "created_at"]
        extra_kwargs = {name: {"allow_null": True} for name in _HIDDEN_FROM_ANNOTATORS}

    def to_representation(self, queue: Queue) -> dict[str, Any]:
        shown = super().to_representation(queue)
        view = self.context.get("view")
        if view is None or not view.may(Permission.READ):
            shown.update(dict.fromkeys(_HIDDEN_FROM_ANNOTATORS))
        return shown


class ReviewersField(serializers.SlugRelatedField[Any]):
    def __init__(self, **given: Any) -> None:
        super().__init__(slug_field="username", queryset=User.objects.filter(is_active=True), **given)


@spec_serializer(ItemSource, "collection", "rollouts", "filter", "per_task", "size")
class QueuePlanSerializer(DeclaredFields, serializers.ModelSerializer[Queue]):
    rubric = serializers.SlugRelatedField[Any](slug_field="slug", queryset=Rubric.objects.all(), required=False)
    reviewers = ReviewersField(
        many=True, required=False, help_text="Reviewers. Default: all annotators, engineers and admins."
    )
    items = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField(min_value=1, max_value=2**63 - 1), max_length=6),
        required=False,
        max_length=10_000,
        help_text="Explicit items: lists of rollouts of one task.",
    )

    class Meta:
        model = Queue
        fields = [*_SETTINGS, "rubric", "reviewers", "collection", "rollouts", "filter", "items", "per_task", "size"]


class QueueChangeSerializer(DeclaredFields, serializers.ModelSerializer[Queue]):
    reviewers = ReviewersField(
        many=True, required=False, help_text="New list of reviewers; empty: all annotators, engineers and admins."
    )

    class Meta:
        model = Queue
        fields = ["name", "instructions", "overlap", "order", "lease_minutes", "reviewers"]


class WaitingSerializer(serializers.Serializer[Any]):
    queue = serializers.IntegerField(source="queue.pk")
    name = serializers.CharField(source="queue.name")
    left = serializers.IntegerField(help_text="Items left for you, hidden repeats included.")
    is_begun = serializers.BooleanField(help_text="You have an open item.")


class ProgressSerializer(serializers.Serializer[Any]):
    items = serializers.IntegerField()
    finished = serializers.IntegerField(help_text="Items with all their reviews, or adjudicated.")
    begun = serializers.IntegerField()
    disputed = serializers.IntegerField()
    adjudicated = serializers.IntegerField()
    reviews = serializers.IntegerField()
    wanted = serializers.IntegerField()
    share = serializers.FloatField()
    lost = serializers.IntegerField(help_text="Unfinished items with a deleted rollout. Not counted elsewhere.")


@record_serializer(
    Agreement,
    name="`verdict`, or a criterion.",
    units="Units with at least two reviews.",
    kappa="Cohen's κ, averaged over pairs of reviewers.",
    nominal="Krippendorff's α of the outcome alone.",
    scale="Krippendorff's α of ordered values.",
)
class AgreementSerializer(serializers.Serializer[Any]):
    kappas = serializers.SerializerMethodField()
    differences = serializers.SerializerMethodField(
        help_text="The ten most frequent disagreements between two reviewers."
    )

    def get_kappas(self, agreement: Agreement) -> list[dict[str, Any]]:
        return [dict(zip(("one", "other", "kappa", "units"), each, strict=True)) for each in agreement.kappas]

    def get_differences(self, agreement: Agreement) -> list[dict[str, Any]]:
        return [dict(zip(("one", "other", "count"), each, strict=True)) for each in agreement.differences]


class AgainstSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    same = serializers.IntegerField()
    compared = serializers.IntegerField()
    share = serializers.FloatField(allow_null=True)
    correlation = serializers.FloatField(allow_null=True)


ReviewerFiguresSerializer = make_serializer(
    "ReviewerFigures",
    Reviewer,
    seconds="Median seconds per item.",
    first_side="Share of A among verdicts for a side.",
    repeated="Hidden repeats.",
    consistent="Repeats with the same answer as the first time.",
    could_see_results="Submitted reviews by users whose role shows rewards, models and other reviews.",
)


class QueueFiguresSerializer(serializers.Serializer[Any]):
    progress = ProgressSerializer()
    reviewers = ReviewerFiguresSerializer(many=True)
    agreement = AgreementSerializer(many=True)
    against_rewards = AgainstSerializer(many=True)
    against_lengths = AgainstSerializer(
        many=True, help_text="Share of preferences for the longer rollout. Values far from 0.5 suggest a length bias."
    )


class QueueItemSerializer(serializers.ModelSerializer[QueueItem]):
    rollouts = serializers.SerializerMethodField()

    class Meta:
        model = QueueItem
        fields = ["id", "queue", "task", "rollouts", "doubt", "done", "is_repeated", "is_adjudicated"]

    @extend_schema(responses={"type": "array", "items": {"type": "integer"}})
    def get_rollouts(self, item: QueueItem) -> list[int]:
        return [each.rollout_id for each in item.entries.all()]
