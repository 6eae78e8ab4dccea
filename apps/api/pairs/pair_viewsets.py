"""Preference pairs, the sets that a rule made of collections, and what people decided of them."""

from decimal import Decimal
from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.problems import QueryProblem
from apps.api.framework.query_filters import FlagFilter, IdFilter
from apps.api.pairs.pair_serializers import (
    AskSerializer,
    DecidedSerializer,
    DecisionSerializer,
    OpinionSerializer,
    PairPreviewRuleSerializer,
    PairPreviewSerializer,
    PairRuleSerializer,
    PairSerializer,
    PairSetChangesSerializer,
    PairSetSerializer,
    PairVerdictSerializer,
    PairVerdictsSerializer,
)
from apps.api.reviews.queue_serializers import QueueSerializer
from apps.pairs.models import PairDecision, PairSet, PreferencePair
from apps.pairs.pair_counts import count_pairs
from apps.pairs.pair_decisions import decide_pairs
from apps.pairs.pair_queues import ask_people
from apps.pairs.pair_search import Flag, flag_pairs, leave_out_close
from apps.pairs.pair_sets import PairOrder, cancel_pair_set, check_collections, delete_pair_set, order_pairs
from apps.pairs.provenance import read_opinions
from apps.pairs.set_differences import compare_pair_sets


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
    margin_min = django_filters.NumberFilter(
        method="wide",
        label="Without those that rewards made by a smaller margin; what people chose has none, and stays.",
    )
    status = django_filters.ChoiceFilter(choices=PreferencePair.Status.choices)
    source = django_filters.ChoiceFilter(choices=PreferencePair.Source.choices)
    long = FlagFilter("long", method="flagged", label="One side is more than twice as long as the other.")
    against_reward = FlagFilter("against_reward", method="flagged", label="The chosen reward is the lower one.")
    same_answer = FlagFilter("same_answer")

    class Meta:
        model = PreferencePair
        fields: list[str] = []

    def wide(self, pairs: Any, name: str, value: Decimal) -> Any:
        return leave_out_close(pairs, float(value))

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
    query_parameters = {"changes": frozenset({"since"})}

    @extend_schema(request=PairRuleSerializer, responses={201: PairSetSerializer})
    def create(self, request: Request) -> Response:
        """Pair better with worse rollouts of the same task. Small collections at once; of large ones a worker makes the
        set, and `state` says when it is ready."""
        rule = PairRuleSerializer(data=request.data)
        rule.is_valid(raise_exception=True)
        pair_set = order_pairs(PairOrder(**rule.validated_data), user=self.person)
        return Response(PairSetSerializer(pair_set).data, status=HTTPStatus.CREATED)

    @extend_schema(request=PairPreviewRuleSerializer, responses=PairPreviewSerializer)
    @action(detail=False, methods=["post"])
    def count(self, request: Request) -> Response:
        """What a rule would make, and the first of its pairs; nothing is stored. Counts for a second and a half."""
        rule = PairPreviewRuleSerializer(data=request.data)
        rule.is_valid(raise_exception=True)
        keep = rule.validated_data.pop("limit", 0)
        order = PairOrder(**rule.validated_data)
        preview = count_pairs(check_collections(order), order.rule, keep=keep)
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

    @extend_schema(
        responses=PairSetChangesSerializer,
        parameters=[OpenApiParameter("since", int, description="An earlier version; by default the one before.")],
    )
    @action(detail=True)
    def changes(self, request: Request, pk: str) -> Response:
        """What changed since the version before, or since an earlier one."""
        given = request.query_params.get("since")
        if given is not None and not (given.isascii() and given.isdigit() and 0 < len(given) < 10):
            raise QueryProblem([{"pointer": "?since", "code": "invalid", "message": "Give the number of a version."}])
        changes = compare_pair_sets(self.get_object(), since=None if given is None else int(given))
        return Response(PairSetChangesSerializer(changes).data)


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
        "reviews": Permission.READ,
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

    @extend_schema(operation_id="pairs_reviews", responses=OpinionSerializer(many=True))
    @action(detail=True, filterset_class=None, pagination_class=None)
    def reviews(self, request: Request, pk: str) -> Response:
        """What each review says of the two that its verdict was read in: the votes, then the adjudication."""
        opinions = read_opinions(self.get_object())
        return Response(OpinionSerializer(opinions, many=True).data)
