"""What the API says of queues, their items and their figures, and what it is told to make or change one."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers

from apps.accounts.models import User
from apps.accounts.permissions import Permission
from apps.api.framework.declared_fields import DeclaredFields
from apps.reviews.models import Queue, QueueItem, Rubric
from apps.rollouts.models import Collection
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH

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
    """How items were drawn is null for annotators."""

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


class QueuePlanSerializer(DeclaredFields, serializers.ModelSerializer[Queue]):
    rubric = serializers.SlugRelatedField[Any](slug_field="slug", queryset=Rubric.objects.all(), required=False)
    reviewers = serializers.SlugRelatedField[Any](
        slug_field="username",
        queryset=User.objects.filter(is_active=True),
        many=True,
        required=False,
        help_text="Who reviews it; left out: any annotator.",
    )
    collection = serializers.PrimaryKeyRelatedField(
        queryset=Collection.objects.present(), required=False, help_text="Its completed rollouts make the items."
    )
    rollouts = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**63 - 1),
        required=False,
        max_length=10_000,
        help_text="These make the items: one each, or pairs and rankings of those of one task.",
    )
    filter = serializers.CharField(
        required=False,
        max_length=MAX_LENGTH,
        help_text="What passes makes the items: a filter as `q` of rollouts takes it.",
    )
    items = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField(min_value=1, max_value=2**63 - 1), max_length=6),
        required=False,
        max_length=10_000,
        help_text="The items themselves, such as proposed pairs: lists of rollouts of one task.",
    )
    per_task = serializers.IntegerField(min_value=1, max_value=15, default=1, help_text="Pairs of each task.")
    size = serializers.IntegerField(min_value=2, max_value=6, default=4, help_text="Rollouts in a ranking.")

    class Meta:
        model = Queue
        fields = [*_SETTINGS, "rubric", "reviewers", "collection", "rollouts", "filter", "items", "per_task", "size"]


class QueueChangeSerializer(DeclaredFields, serializers.ModelSerializer[Queue]):
    reviewers = serializers.SlugRelatedField[Any](
        slug_field="username",
        queryset=User.objects.filter(is_active=True),
        many=True,
        required=False,
        help_text="Who reviews it from now on; an empty list: any annotator.",
    )

    class Meta:
        model = Queue
        fields = ["name", "instructions", "overlap", "order", "lease_minutes", "reviewers"]


class WaitingSerializer(serializers.Serializer[Any]):
    queue = serializers.IntegerField(source="queue.pk")
    name = serializers.CharField(source="queue.name")
    left = serializers.IntegerField(help_text="Reviews that you may still give here, hidden repeats included.")
    is_begun = serializers.BooleanField(help_text="You hold an item of it.")


class ProgressSerializer(serializers.Serializer[Any]):
    items = serializers.IntegerField()
    finished = serializers.IntegerField(help_text="Judged as often as they overlap, or adjudicated.")
    begun = serializers.IntegerField()
    disputed = serializers.IntegerField()
    adjudicated = serializers.IntegerField()
    reviews = serializers.IntegerField()
    wanted = serializers.IntegerField()
    share = serializers.FloatField()
    lost = serializers.IntegerField(help_text="Unfinished ones that lost a rollout: in no other number here.")


class KappaSerializer(serializers.Serializer[Any]):
    one = serializers.CharField()
    other = serializers.CharField()
    kappa = serializers.FloatField(allow_null=True)
    units = serializers.IntegerField()


class DifferenceSerializer(serializers.Serializer[Any]):
    one = serializers.CharField(help_text="What one of the two said.")
    other = serializers.CharField()
    count = serializers.IntegerField()


class AgreementSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="`verdict`, or the criterion.")
    units = serializers.IntegerField(help_text="What at least two people judged.")
    percent = serializers.FloatField(allow_null=True)
    kappa = serializers.FloatField(allow_null=True, help_text="Cohen's, the mean over every two people.")
    nominal = serializers.FloatField(allow_null=True, help_text="Krippendorff's α of the outcome alone.")
    scale = serializers.FloatField(allow_null=True, help_text="Krippendorff's α of what has an order.")
    kappas = serializers.SerializerMethodField()
    differences = serializers.SerializerMethodField(
        help_text="Of every two people who said different things of the same: what they said. The ten most frequent."
    )

    @extend_schema(responses=KappaSerializer(many=True))
    def get_kappas(self, agreement: Any) -> list[dict[str, Any]]:
        names = ("one", "other", "kappa", "units")
        return [dict(zip(names, each, strict=True)) for each in agreement.kappas]

    @extend_schema(responses=DifferenceSerializer(many=True))
    def get_differences(self, agreement: Any) -> list[dict[str, Any]]:
        names = ("one", "other", "count")
        return [dict(zip(names, each, strict=True)) for each in agreement.differences]


class AgainstSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    same = serializers.IntegerField()
    compared = serializers.IntegerField()
    share = serializers.FloatField(allow_null=True)
    correlation = serializers.FloatField(allow_null=True)


class ReviewerFiguresSerializer(serializers.Serializer[Any]):
    username = serializers.CharField()
    submitted = serializers.IntegerField()
    skipped = serializers.IntegerField()
    open = serializers.IntegerField()
    seconds = serializers.FloatField(allow_null=True, help_text="Median of an item.")
    per_hour = serializers.FloatField(allow_null=True)
    last_at = serializers.DateTimeField(allow_null=True)
    first_side = serializers.FloatField(allow_null=True, help_text="Of the verdicts for a side, the share of A.")
    repeated = serializers.IntegerField(help_text="Hidden repeats.")
    consistent = serializers.IntegerField(help_text="Of those, answered as the first time.")
    could_see_results = serializers.IntegerField(
        help_text="Submitted reviews by users whose role shows rewards, models and other reviews."
    )


class QueueFiguresSerializer(serializers.Serializer[Any]):
    progress = ProgressSerializer()
    reviewers = ReviewerFiguresSerializer(many=True)
    agreement = AgreementSerializer(many=True)
    against_rewards = AgainstSerializer(many=True)
    against_lengths = AgainstSerializer(
        many=True, help_text="How often people preferred the attempt of more tokens: far from half, length is judged."
    )


class QueueItemSerializer(serializers.ModelSerializer[QueueItem]):
    rollouts = serializers.SerializerMethodField()

    class Meta:
        model = QueueItem
        fields = ["id", "queue", "task", "rollouts", "doubt", "done", "is_repeated", "is_adjudicated"]

    @extend_schema(responses={"type": "array", "items": {"type": "integer"}})
    def get_rollouts(self, item: QueueItem) -> list[int]:
        return [each.rollout_id for each in item.entries.all()]
