"""Serializers of pairs, pair sets, rules, and the requests to build, decide and review them."""

from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.record_serializers import make_serializer, record_serializer
from apps.api.framework.spec_serializers import spec_serializer
from apps.gym.pairs.pair_rule import Rule
from apps.pairs.models import PairDecision, PairSet, PreferencePair
from apps.pairs.pair_counts import PairCounts
from apps.pairs.pair_queues import DEFAULT_PAIRS, MAX_PAIRS
from apps.pairs.pair_sets import PairOrder
from apps.pairs.provenance import Opinion
from apps.reviews.models import Review
from apps.reviews.models.queues import MAX_OVERLAP

MAX_PREVIEW = 20
MAX_TOGETHER = 1000


class PairSetSerializer(serializers.ModelSerializer[PairSet]):
    further: Any = serializers.PrimaryKeyRelatedField(many=True, read_only=True, help_text="Additional collections.")
    rule = serializers.DictField(read_only=True)
    counts = serializers.DictField(child=serializers.IntegerField(), read_only=True)
    excluded = serializers.DictField(child=serializers.IntegerField(), read_only=True)
    sources = serializers.DictField(child=serializers.IntegerField(), read_only=True)

    class Meta:
        model = PairSet
        fields = [
            "id",
            "name",
            "version",
            "collection",
            "further",
            "rule",
            "rule_digest",
            "margin",
            "min_chosen_reward",
            "keeps_decisions",
            "state",
            "total",
            "considered",
            "pair_count",
            "counts",
            "excluded",
            "sources",
            "message",
            "stale_at",
            "stale_reason",
            "created_at",
            "finished_at",
        ]


@spec_serializer(Rule)
@spec_serializer(PairOrder, "collection", "further")
class RuleSerializer(DeclaredFields, serializers.Serializer[Any]):
    """The fields of a rule, and the collections to which it is applied."""

    def to_internal_value(self, data: Any) -> Any:
        given = super().to_internal_value(data)
        known = {name: given.pop(name) for name in Rule.__struct_fields__ if name in given}
        return {**given, "rule": msgspec.convert(known, Rule)}


@spec_serializer(PairOrder, "name", "keeps_decisions")
class PairRuleSerializer(RuleSerializer):
    pass


class PairPreviewRuleSerializer(RuleSerializer):
    limit = serializers.IntegerField(
        required=False, min_value=0, max_value=MAX_PREVIEW, help_text="Number of pairs to show."
    )


class NewPairSerializer(serializers.Serializer[Any]):
    task = serializers.IntegerField(source="task_id")
    chosen = serializers.IntegerField(source="pair.chosen")
    rejected = serializers.IntegerField(source="pair.rejected")
    chosen_reward = serializers.FloatField(source="chosen.reward", allow_null=True)
    rejected_reward = serializers.FloatField(source="rejected.reward", allow_null=True)
    margin = serializers.FloatField(source="pair.margin", allow_null=True)
    source = serializers.CharField(source="pair.source")  # type: ignore[assignment]
    turn = serializers.IntegerField(source="pair.turn", allow_null=True)
    chosen_length = serializers.IntegerField(source="pair.chosen_length")
    rejected_length = serializers.IntegerField(source="pair.rejected_length")


PairCountsSerializer = make_serializer(
    "PairCounts",
    PairCounts,
    groups="Number of groups by outcome.",
    excluded="Unused rollouts by reason.",
    sources="Number of pairs by source.",
    considered="Number of rollouts checked.",
    whole="False if the counts cover only the first `considered` of `total` rollouts.",
)


class PairPreviewSerializer(serializers.Serializer[Any]):
    counts = PairCountsSerializer()
    pairs = NewPairSerializer(many=True)


class PairSerializer(serializers.ModelSerializer[PreferencePair]):
    verifier_rewards = serializers.DictField(child=serializers.FloatField(allow_null=True), read_only=True)
    reviews = serializers.ListField(
        child=serializers.IntegerField(), read_only=True, help_text="Reviews that the verdict is based on."
    )
    length_ratio = serializers.FloatField(read_only=True, allow_null=True)
    reviewers = serializers.IntegerField(
        read_only=True, help_text="Number of reviewers of the two rollouts, without the adjudicator."
    )
    agreeing = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Number of reviewers who agree with the pair."
    )
    adjudicated = serializers.BooleanField(read_only=True, help_text="True if the verdict is an adjudication.")

    class Meta:
        model = PreferencePair
        fields = [
            "id",
            "pair_set",
            "task",
            "chosen",
            "rejected",
            "chosen_reward",
            "rejected_reward",
            "verifier_rewards",
            "margin",
            "source",
            "strength",
            "reviewers",
            "agreeing",
            "agreement",
            "adjudicated",
            "reviews",
            "turn",
            "chosen_length",
            "rejected_length",
            "length_ratio",
            "same_answer",
            "status",
            "stale_at",
            "stale_reason",
        ]


@record_serializer(
    Opinion,
    reviewer="Null if the account was deleted.",
    said="The better side; null if the review was withdrawn.",
    strength="2 much better, 1 better, 0 neither.",
    is_later="True if the review changed after the pair was built.",
)
class OpinionSerializer(serializers.Serializer[Any]):
    queue_name = None
    status = serializers.ChoiceField(choices=Review.Status.choices)


class DecisionSerializer(serializers.ModelSerializer[PairDecision]):
    user = serializers.CharField(source="user.username", default=None, allow_null=True, read_only=True)

    class Meta:
        model = PairDecision
        fields = ["id", "status", "reason", "user", "carried", "created_at"]


class PairVerdictSerializer(DeclaredFields, serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=PreferencePair.Status.choices)
    reason = serializers.CharField(required=False, max_length=500, help_text="Required to reject a pair.")


class PairVerdictsSerializer(PairVerdictSerializer):
    pairs = serializers.PrimaryKeyRelatedField(queryset=PreferencePair.objects.all(), many=True, allow_empty=False)

    def validate_pairs(self, pairs: list[PreferencePair]) -> list[PreferencePair]:
        if len(pairs) > MAX_TOGETHER:
            raise serializers.ValidationError(f"At most {MAX_TOGETHER:,} pairs per request.")
        return pairs


class AskSerializer(DeclaredFields, serializers.Serializer[Any]):
    name = serializers.CharField(required=False, max_length=150)
    limit = serializers.IntegerField(
        default=DEFAULT_PAIRS, min_value=1, max_value=MAX_PAIRS, help_text="Maximum number of pairs."
    )
    overlap = serializers.IntegerField(default=1, min_value=1, max_value=MAX_OVERLAP, help_text="Reviews per pair.")


class DecidedSerializer(serializers.Serializer[Any]):
    changed = serializers.IntegerField(help_text="Number of pairs whose status changed.")


class PairSetChangesSerializer(serializers.Serializer[Any]):
    before = serializers.IntegerField(source="one.pk")
    after = serializers.IntegerField(source="other.pk")
    kept = serializers.IntegerField(help_text="Number of equal pairs in both versions.")
    turned = serializers.IntegerField(help_text="Number of swapped pairs.")
    added = serializers.IntegerField()
    removed = serializers.IntegerField()
    settings = serializers.SerializerMethodField(help_text="Differing rule options: [before, after] by name.")

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "array", "items": {}}})
    def get_settings(self, changes: Any) -> dict[str, Any]:
        return {name: list(values) for name, values in changes.settings.items()}
