"""Flags, rewards that people give, and the verdicts that stand between two rollouts."""

from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.problems import QueryProblem
from apps.api.framework.query_filters import FlagFilter, IdFilter
from apps.reviews.agreement.decisions import read_verdicts
from apps.reviews.models import Flag, RewardOverride
from apps.reviews.reviews.flags import raise_flag, withdraw_flag
from apps.reviews.reviews.reward_overrides import override_reward, withdraw_override
from apps.rollouts.models import Collection, Rollout

MAX_SEQ = 2**31 - 1


class FlagSerializer(DeclaredFields, serializers.ModelSerializer[Flag]):
    rollout = serializers.PrimaryKeyRelatedField(queryset=Rollout.objects.filter(collection__is_being_deleted=False))
    seq = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=MAX_SEQ)
    author = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    class Meta:
        model = Flag
        fields = ["id", "rollout", "seq", "kind", "note", "author", "created_at", "withdrawn_at"]
        read_only_fields = ["withdrawn_at"]


class FlagFilterSet(django_filters.FilterSet):
    rollout = IdFilter("rollout")
    collection = IdFilter("rollout__collection")
    kind = django_filters.ChoiceFilter(choices=Flag.Kind.choices)
    standing = FlagFilter("withdrawn_at", lookup_expr="isnull")

    class Meta:
        model = Flag
        fields: list[str] = []


class FlagViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Flag.objects.select_related("author")
    serializer_class = FlagSerializer
    filterset_class = FlagFilterSet
    lookup_value_regex = "[0-9]+"
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.COMMENT,
        "withdraw": Permission.COMMENT,
    }

    @extend_schema(request=FlagSerializer, responses={201: FlagSerializer})
    def create(self, request: Request) -> Response:
        """Flag a rollout or one of its steps; the same flag of yours stands once."""
        body = FlagSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        flag = raise_flag(**body.validated_data, author=self.person)
        return Response(FlagSerializer(flag).data, status=HTTPStatus.CREATED)

    @extend_schema(request=None, responses=FlagSerializer)
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: str) -> Response:
        """Take your flag back, or anybody's where you lead queues. It stays as history."""
        return Response(FlagSerializer(withdraw_flag(flag=self.get_object(), user=self.person)).data)


class RewardOverrideSerializer(DeclaredFields, serializers.ModelSerializer[RewardOverride]):
    rollout = serializers.PrimaryKeyRelatedField(queryset=Rollout.objects.filter(collection__is_being_deleted=False))
    author = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)
    ended_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    ended_how = serializers.CharField(
        read_only=True, help_text="`replaced` by another, `withdrawn`, or nothing while it stands."
    )

    class Meta:
        model = RewardOverride
        fields = [
            "id",
            "rollout",
            "reward",
            "original_reward",
            "reason",
            "author",
            "created_at",
            "ended_at",
            "ended_by",
            "ended_how",
        ]
        read_only_fields = ["original_reward", "ended_at"]


class RewardOverrideFilter(django_filters.FilterSet):
    rollout = IdFilter("rollout")
    collection = IdFilter("rollout__collection")
    standing = FlagFilter("ended_at", lookup_expr="isnull")

    class Meta:
        model = RewardOverride
        fields: list[str] = []


class RewardOverrideViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = RewardOverride.objects.select_related("author", "ended_by")
    serializer_class = RewardOverrideSerializer
    filterset_class = RewardOverrideFilter
    lookup_value_regex = "[0-9]+"
    problems = {"withdraw": {409}}
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.LEAD,
        "withdraw": Permission.LEAD,
    }

    @extend_schema(request=RewardOverrideSerializer, responses={201: RewardOverrideSerializer})
    def create(self, request: Request) -> Response:
        """Let another reward stand for a rollout. The verifier's stays on it, and what stood before is kept."""
        body = RewardOverrideSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given = override_reward(**body.validated_data, author=self.person)
        return Response(RewardOverrideSerializer(given).data, status=HTTPStatus.CREATED)

    @extend_schema(request=None, responses=RewardOverrideSerializer)
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, pk: str) -> Response:
        """The verifier's reward counts again; this one stays as history. 409 where it stands no more, such as when
        somebody has replaced it."""
        ended = withdraw_override(override=self.get_object(), user=self.person)
        return Response(RewardOverrideSerializer(ended).data)


class StandingVerdictSerializer(serializers.Serializer[Any]):
    low = serializers.IntegerField(help_text="The rollout with the lower id.")
    high = serializers.IntegerField()
    low_collection = serializers.IntegerField(help_text="The collection that `low` is of.")
    high_collection = serializers.IntegerField()
    outcome = serializers.ChoiceField(choices=["low", "high", "equal", "both_bad", "split"])
    winner = serializers.IntegerField(allow_null=True)
    loser = serializers.IntegerField(allow_null=True)
    strength = serializers.IntegerField(help_text="2 much better, 1 better, 0 neither.")
    how = serializers.ChoiceField(choices=["adjudicated", "majority", "single", "split"])
    reviewers = serializers.IntegerField()
    agreeing = serializers.IntegerField()
    reviews = serializers.ListField(child=serializers.IntegerField())


class VerdictViewSet(TableViewSet):
    permissions = {"show": Permission.READ}
    query_parameters = {"show": frozenset({"collection"})}
    pagination_class = None
    filter_backends = []

    @extend_schema(
        responses=StandingVerdictSerializer(many=True),
        parameters=[
            OpenApiParameter(
                "collection",
                int,
                required=True,
                description="Whose rollouts were compared, with each other or with those of another collection.",
            )
        ],
    )
    def show(self, request: Request) -> Response:
        """What stands of every two rollouts that people judged and of which one or both are of a collection:
        adjudicated, or by majority."""
        given = request.query_params.get("collection", "")
        number = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else 0
        collection = Collection.objects.present().filter(pk=number).first()
        if collection is None:
            message = "Give the number of a collection."
            raise QueryProblem([{"pointer": "?collection", "code": "invalid", "message": message}])
        return Response(StandingVerdictSerializer(read_verdicts(collection).values(), many=True).data)
