"""Flags, reward overrides, and the outcomes of comparisons between rollouts."""

from typing import Any

import django_filters
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.mixins import CreateModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, TableViewSet, operation, row_action
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.problems import bad_query
from apps.api.framework.query_filters import FlagFilter, IdFilter, filter_set, read_integer
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


class FlagViewSet(CreateModelMixin, RowViewSet):
    noun = "flag"
    queryset = Flag.objects.select_related("author")
    serializer_class = FlagSerializer
    filterset_class = filter_set(
        rollout=IdFilter("rollout"),
        collection=IdFilter("rollout__collection"),
        kind=django_filters.ChoiceFilter(choices=Flag.Kind.choices),
        standing=FlagFilter("withdrawn_at", lookup_expr="isnull"),
    )
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.COMMENT,
        "withdraw": Permission.COMMENT,
    }

    def perform_create(self, serializer: serializers.BaseSerializer[Flag]) -> None:
        """Flag a rollout or one of its steps. Each of your flags is stored once."""
        serializer.instance = raise_flag(**serializer.validated_data, author=self.user)

    withdraw = row_action(
        "withdraw", withdraw_flag, "Withdraw your own flag, or any flag if you manage queues. It stays as history."
    )


class RewardOverrideSerializer(DeclaredFields, serializers.ModelSerializer[RewardOverride]):
    rollout = serializers.PrimaryKeyRelatedField(queryset=Rollout.objects.filter(collection__is_being_deleted=False))
    author = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)
    ended_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    ended_how = serializers.CharField(read_only=True, help_text="`replaced`, `withdrawn`, or empty while active.")

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


class RewardOverrideViewSet(CreateModelMixin, RowViewSet):
    queryset = RewardOverride.objects.select_related("author", "ended_by")
    serializer_class = RewardOverrideSerializer
    filterset_class = filter_set(
        rollout=IdFilter("rollout"),
        collection=IdFilter("rollout__collection"),
        standing=FlagFilter("ended_at", lookup_expr="isnull"),
    )
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.LEAD,
        "withdraw": Permission.LEAD,
    }

    def perform_create(self, serializer: serializers.BaseSerializer[RewardOverride]) -> None:
        """Override the reward of a rollout. The verifier's reward and earlier overrides are kept."""
        serializer.instance = override_reward(**serializer.validated_data, author=self.user)

    @operation(responses=RewardOverrideSerializer)
    def withdraw(self, request: Request, pk: str) -> Response:
        """Restore the reward of the verifier.

        The override stays as history. 409 if it is not active any more, for example because it was replaced.
        """
        ended = withdraw_override(override=self.get_object(), user=self.user)
        return Response(RewardOverrideSerializer(ended).data)


class StandingVerdictSerializer(serializers.Serializer[Any]):
    low = serializers.IntegerField(help_text="The rollout with the lower id.")
    high = serializers.IntegerField()
    low_collection = serializers.IntegerField(help_text="Collection of `low`.")
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
                description="Collection with at least one of the compared rollouts.",
            )
        ],
    )
    def show(self, request: Request) -> Response:
        """Return the outcome of each compared pair of rollouts in the collection: adjudicated, or by majority."""
        message = "Give the number of a collection."
        number = read_integer(request, "collection", message=message) or 0
        collection = Collection.objects.present().filter(pk=number).first()
        if collection is None:
            raise bad_query("collection", message)
        return Response(StandingVerdictSerializer(read_verdicts(collection).values(), many=True).data)
