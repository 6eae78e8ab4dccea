"""Preference pairs, the sets that a rule made of collections, and what people decided of them."""

from http import HTTPStatus
from typing import Any, get_args

import django_filters
import msgspec
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.declared import DeclaredFields
from apps.api.filters import FlagFilter, IdFilter
from apps.api.queues import QueueSerializer
from apps.api.viewsets import TableViewSet
from apps.exports.asking import MOST, USUAL, ask_people
from apps.exports.counting import count_pairs
from apps.exports.deciding import decide_pairs
from apps.exports.differing import compare_pair_sets
from apps.exports.finding import Flag, flag_pairs
from apps.exports.models import PairDecision, PairSet, PreferencePair
from apps.exports.pairing import cancel_pair_set, check_collections, delete_pair_set, order_pairs
from apps.gym.pairs import CAP_OF_ALL, Level, Mode, Rule
from apps.rollouts.models import Collection

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


class RuleSerializer(DeclaredFields, serializers.Serializer[Any]):
    """The fields of a rule, of what it is applied to."""

    collection = serializers.PrimaryKeyRelatedField(queryset=Collection.objects.present())
    further = serializers.PrimaryKeyRelatedField(
        queryset=Collection.objects.present(),
        many=True,
        required=False,
        help_text="Collections beside the first: pairs go over all of them where prompt and tools are the same.",
    )
    mode = serializers.ChoiceField(choices=get_args(Mode), default="best_worst")
    level = serializers.ChoiceField(
        choices=get_args(Level),
        default="trajectory",
        help_text="Whole attempts, or the first action that differs after the same state.",
    )
    margin = serializers.FloatField(min_value=0, default=0.1, help_text="chosen − rejected is at least this.")
    min_chosen_reward = serializers.FloatField(required=False, allow_null=True)
    per_task = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=10_000,
        help_text=f"At most so many pairs of a task; in the mode `all` {CAP_OF_ALL} unless given.",
    )
    max_length_ratio = serializers.FloatField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=1e6,
        help_text="The longer side has at most so many times the characters of the shorter one.",
    )
    same = serializers.ChoiceField(
        choices=["actions", "completions"],
        default="actions",
        help_text="Two attempts are the same that did the same, or that also thought the same.",
    )
    include_truncated = serializers.BooleanField(default=False)
    include_redacted = serializers.BooleanField(default=False, help_text="Also attempts that had credentials.")
    reward_from = serializers.ChoiceField(
        choices=["verifier", "override"],
        default="verifier",
        help_text="override: where people have set a reward, theirs counts.",
    )

    def to_internal_value(self, data: Any) -> Any:
        given = super().to_internal_value(data)
        known = {name: given.pop(name) for name in Rule.__struct_fields__ if name in given}
        return {**given, "rule": msgspec.convert(known, Rule)}


class PairRuleSerializer(RuleSerializer):
    name = serializers.CharField(
        required=False, max_length=120, help_text="A new version of this pair set; default: that of the collection."
    )
    keeps_decisions = serializers.BooleanField(
        default=True, help_text="What was decided of pairs in the version before holds for the same pairs."
    )


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


class PairSetFilter(django_filters.FilterSet):
    collection = IdFilter("collection")
    name = django_filters.CharFilter(field_name="name")
    state = django_filters.ChoiceFilter(choices=PairSet.State.choices)

    class Meta:
        model = PairSet
        fields: list[str] = []


class PairFilter(django_filters.FilterSet):
    pair_set = IdFilter("pair_set")
    task = IdFilter("task")
    margin_min = django_filters.NumberFilter(field_name="margin", lookup_expr="gte")
    status = django_filters.ChoiceFilter(choices=PreferencePair.Status.choices)
    source = django_filters.ChoiceFilter(choices=PreferencePair.Source.choices)
    long = FlagFilter("long", method="flagged", label="One side is more than twice as long as the other.")
    against_reward = FlagFilter("against_reward", method="flagged", label="The chosen reward is the lower one.")
    same_answer = FlagFilter("same_answer")

    class Meta:
        model = PreferencePair
        fields: list[str] = []

    def flagged(self, pairs: Any, name: Flag, value: bool | None) -> Any:
        return pairs if value is None else flag_pairs(pairs, name, value=value)


class PairSetViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = PairSet.objects.prefetch_related("further")
    serializer_class = PairSetSerializer
    filterset_class = PairSetFilter
    lookup_value_regex = "[0-9]+"
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.PAIR,
        "count": Permission.PAIR,
        "cancel": Permission.PAIR,
        "destroy": Permission.PAIR,
        "changes": Permission.READ,
        "ask": Permission.LEAD,
    }
    problems = {"cancel": {409}, "destroy": {409}, "changes": {409}}

    @extend_schema(request=PairRuleSerializer, responses={201: PairSetSerializer})
    def create(self, request: Request) -> Response:
        """Pair better with worse rollouts of the same task. Small collections at once; of large ones a worker makes the
        set, and `state` says when it is ready."""
        rule = PairRuleSerializer(data=request.data)
        rule.is_valid(raise_exception=True)
        pair_set = order_pairs(**rule.validated_data, user=self.person)
        return Response(PairSetSerializer(pair_set).data, status=HTTPStatus.CREATED)

    @extend_schema(request=PairPreviewRuleSerializer, responses=PairPreviewSerializer)
    @action(detail=False, methods=["post"])
    def count(self, request: Request) -> Response:
        """What a rule would make, and the first of its pairs; nothing is stored. Counts for a second and a half."""
        rule = PairPreviewRuleSerializer(data=request.data)
        rule.is_valid(raise_exception=True)
        given = rule.validated_data
        collections = check_collections(given["collection"], given.get("further", []), given["rule"])
        preview = count_pairs(collections, given["rule"], keep=given.get("limit", 0))
        return Response(PairPreviewSerializer(preview).data)

    @extend_schema(request=AskSerializer, responses={201: QueueSerializer})
    @action(detail=True, methods=["post"])
    def ask(self, request: Request, pk: str) -> Response:
        """Have people judge proposed pairs, those of the smallest margin first: a pairwise queue. Verdicts count in the
        next version of the set."""
        asked = AskSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        queue = ask_people(pair_set=self.get_object(), **asked.validated_data, user=self.person)
        return Response(QueueSerializer(queue).data, status=HTTPStatus.CREATED)

    @extend_schema(request=None, responses=PairSetSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Stop making it."""
        return Response(PairSetSerializer(cancel_pair_set(pair_set=self.get_object(), user=self.person)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the set with its pairs."""
        delete_pair_set(pair_set=self.get_object(), user=self.person)
        return Response(status=HTTPStatus.NO_CONTENT)

    @extend_schema(responses=PairSetChangesSerializer)
    @action(detail=True)
    def changes(self, request: Request, pk: str) -> Response:
        """What changed since the version before."""
        return Response(PairSetChangesSerializer(compare_pair_sets(self.get_object())).data)


class PairViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = PreferencePair.objects.all()
    serializer_class = PairSerializer
    filterset_class = PairFilter
    ordering = "id"
    lookup_value_regex = "[0-9]+"
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "decide": Permission.PAIR,
        "decide_many": Permission.PAIR,
        "decisions": Permission.READ,
    }
    page_actions = frozenset({"list", "decisions"})

    @extend_schema(request=PairVerdictSerializer, responses=PairSerializer)
    @action(detail=True, methods=["post"])
    def decide(self, request: Request, pk: str) -> Response:
        """Accept or reject a pair, or take that back."""
        verdict = PairVerdictSerializer(data=request.data)
        verdict.is_valid(raise_exception=True)
        pair: PreferencePair = self.get_object()
        decide_pairs(pairs=[pair], **verdict.validated_data, user=self.person)
        pair.refresh_from_db()
        return Response(PairSerializer(pair).data)

    @extend_schema(operation_id="pairs_decide_many", request=PairVerdictsSerializer, responses=DecidedSerializer)
    @action(detail=False, methods=["post"], url_path="decide")
    def decide_many(self, request: Request) -> Response:
        """The same of many pairs together."""
        verdict = PairVerdictsSerializer(data=request.data)
        verdict.is_valid(raise_exception=True)
        return Response({"changed": decide_pairs(**verdict.validated_data, user=self.person)})

    @extend_schema(responses=DecisionSerializer(many=True))
    @action(detail=True, filterset_class=None)
    def decisions(self, request: Request, pk: str) -> Response:
        """What was decided of it, the first decision first."""
        rows = PairDecision.objects.filter(pair=self.get_object()).select_related("user")
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(self.in_part(DecisionSerializer(page, many=True)).data)
