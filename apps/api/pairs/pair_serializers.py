"""What the API says of pairs, pair sets and rules, and what it is told to make, judge or ask about them."""

from typing import Any, get_args

import msgspec
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.spec_serializers import spec_serializer
from apps.gym.pairs.pair_rule import Rule
from apps.pairs.models import PairDecision, PairSet, PreferencePair
from apps.pairs.pair_queues import MOST, USUAL
from apps.pairs.pair_sets import PairOrder
from apps.pairs.provenance import Said
from apps.reviews.models import Review

MAX_PREVIEW = 20
MAX_TOGETHER = 1000


class PairSetSerializer(serializers.ModelSerializer[PairSet]):
    further: Any = serializers.PrimaryKeyRelatedField(
        many=True, read_only=True, help_text="Collections beside the first."
    )
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
            "created_at",
            "finished_at",
        ]


@spec_serializer(Rule)
@spec_serializer(PairOrder, "collection", "further")
class RuleSerializer(DeclaredFields, serializers.Serializer[Any]):
    """The fields of a rule, and the collections that it is applied to."""

    def to_internal_value(self, data: Any) -> Any:
        given = super().to_internal_value(data)
        known = {name: given.pop(name) for name in Rule.__struct_fields__ if name in given}
        return {**given, "rule": msgspec.convert(known, Rule)}


@spec_serializer(PairOrder, "name", "keeps_decisions")
class PairRuleSerializer(RuleSerializer):
    pass


class PairPreviewRuleSerializer(RuleSerializer):
    limit = serializers.IntegerField(required=False, min_value=0, max_value=MAX_PREVIEW, help_text="Pairs to show.")


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


class PairCountsSerializer(serializers.Serializer[Any]):
    pairs = serializers.IntegerField()
    groups = serializers.DictField(child=serializers.IntegerField(), help_text="By what becomes of them.")
    excluded = serializers.DictField(child=serializers.IntegerField(), help_text="Rollouts that are not used.")
    sources = serializers.DictField(child=serializers.IntegerField(), help_text="Pairs by their source.")
    considered = serializers.IntegerField(help_text="Rollouts that were looked at.")
    total = serializers.IntegerField()
    whole = serializers.BooleanField(help_text="False: these are the counts of the first `considered` of `total`.")


class PairPreviewSerializer(serializers.Serializer[Any]):
    counts = PairCountsSerializer()
    pairs = NewPairSerializer(many=True)


class PairSerializer(serializers.ModelSerializer[PreferencePair]):
    verifier_rewards = serializers.DictField(child=serializers.FloatField(allow_null=True), read_only=True)
    reviews = serializers.ListField(
        child=serializers.IntegerField(), read_only=True, help_text="Those that the verdict was read in."
    )
    length_ratio = serializers.FloatField(read_only=True, allow_null=True)
    reviewers = serializers.IntegerField(
        read_only=True, help_text="People who judged the two, whatever they said; the adjudicator is none of them."
    )
    agreeing = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Of the reviewers, those who said what the pair says."
    )
    adjudicated = serializers.BooleanField(
        read_only=True, help_text="The pair says what an adjudicator said, not what the reviewers did."
    )

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
        ]


class OpinionSerializer(serializers.Serializer[Any]):
    review = serializers.IntegerField()
    reviewer = serializers.CharField(allow_null=True, help_text="Null if the account was deleted.")
    said = serializers.ChoiceField(
        choices=get_args(Said),
        allow_null=True,
        help_text="The side that is better; null where it was taken back since.",
    )
    strength = serializers.IntegerField(help_text="2 much better, 1 better, 0 neither.")
    is_adjudication = serializers.BooleanField()
    status = serializers.ChoiceField(choices=Review.Status.choices)
    is_later = serializers.BooleanField(help_text="It was submitted again after the pair was made.")
    submitted_at = serializers.DateTimeField(allow_null=True)
    queue = serializers.IntegerField(allow_null=True)
    item = serializers.IntegerField(allow_null=True)


class DecisionSerializer(serializers.ModelSerializer[PairDecision]):
    user = serializers.CharField(source="user.username", default=None, allow_null=True, read_only=True)

    class Meta:
        model = PairDecision
        fields = ["id", "status", "reason", "user", "carried", "created_at"]


class PairVerdictSerializer(DeclaredFields, serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=PreferencePair.Status.choices)
    reason = serializers.CharField(required=False, max_length=500, help_text="Needed where a pair is rejected.")


class PairVerdictsSerializer(PairVerdictSerializer):
    pairs = serializers.PrimaryKeyRelatedField(queryset=PreferencePair.objects.all(), many=True, allow_empty=False)

    def validate_pairs(self, pairs: list[PreferencePair]) -> list[PreferencePair]:
        if len(pairs) > MAX_TOGETHER:
            raise serializers.ValidationError(f"At most {MAX_TOGETHER:,} pairs together.")
        return pairs


class AskSerializer(DeclaredFields, serializers.Serializer[Any]):
    name = serializers.CharField(required=False, max_length=150)
    limit = serializers.IntegerField(default=USUAL, min_value=1, max_value=MOST, help_text="Pairs at most.")
    overlap = serializers.IntegerField(default=1, min_value=1, max_value=20, help_text="People who judge each pair.")


class DecidedSerializer(serializers.Serializer[Any]):
    changed = serializers.IntegerField(help_text="Pairs that had another status.")


class PairSetChangesSerializer(serializers.Serializer[Any]):
    before = serializers.IntegerField(source="one.pk")
    after = serializers.IntegerField(source="other.pk")
    kept = serializers.IntegerField(help_text="Pairs in both, the same way round and at the same place.")
    turned = serializers.IntegerField(help_text="Pairs of the same two the other way round.")
    added = serializers.IntegerField()
    removed = serializers.IntegerField()
    settings = serializers.SerializerMethodField(help_text="What the rules say differently: [before, after] by name.")

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "array", "items": {}}})
    def get_settings(self, changes: Any) -> dict[str, Any]:
        return {name: list(values) for name, values in changes.settings.items()}
