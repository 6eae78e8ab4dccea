"""Preference pairs, pair sets, and decisions about pairs."""

from decimal import Decimal
from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.mixins import DestroyModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, operation, row_action, row_deletion
from apps.api.framework.query_filters import FlagFilter, IdFilter, filter_set, read_integer
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
from apps.pairs.pair_queues import create_pair_queue
from apps.pairs.pair_search import Flag, flag_pairs, with_minimum_margin
from apps.pairs.pair_sets import PairOrder, cancel_pair_set, check_collections, delete_pair_set, order_pairs
from apps.pairs.provenance import read_opinions
from apps.pairs.set_differences import compare_pair_sets


class PairFilter(django_filters.FilterSet):
    pair_set = IdFilter("pair_set")
    task = IdFilter("task")
    margin_min = django_filters.NumberFilter(
        method="wide",
        label="Minimum margin of reward pairs. Pairs from reviews have no margin and always match.",
    )
    status = django_filters.ChoiceFilter(choices=PreferencePair.Status.choices)
    source = django_filters.ChoiceFilter(choices=PreferencePair.Source.choices)
    long = FlagFilter("long", method="flagged", label="Only pairs in which one side is more than twice as long.")
    against_reward = FlagFilter("against_reward", method="flagged", label="Only pairs whose chosen reward is lower.")
    same_answer = FlagFilter("same_answer")
    fresh = FlagFilter("stale_at", lookup_expr="isnull", label="True: pairs that no recheck has made stale.")

    def wide(self, pairs: Any, name: str, value: Decimal) -> Any:
        return with_minimum_margin(pairs, float(value))

    def flagged(self, pairs: Any, name: Flag, value: bool | None) -> Any:
        return pairs if value is None else flag_pairs(pairs, name, value=value)


class PairSetViewSet(DestroyModelMixin, RowViewSet):
    noun = "pair_set"
    queryset = PairSet.objects.prefetch_related("further")
    serializer_class = PairSetSerializer
    filterset_class = filter_set(
        collection=IdFilter("collection"),
        name=django_filters.CharFilter(field_name="name"),
        state=django_filters.ChoiceFilter(choices=PairSet.State.choices),
        fresh=FlagFilter("stale_at", lookup_expr="isnull", label="True: pair sets that no recheck has made stale."),
    )
    permissions = {
        **dict.fromkeys(["list", "retrieve", "changes"], Permission.READ),
        **dict.fromkeys(["create", "count", "cancel", "destroy"], Permission.PAIR),
        "ask": Permission.LEAD,
    }
    problems = {"changes": {409}}

    @extend_schema(request=PairRuleSerializer, responses={201: PairSetSerializer})
    def create(self, request: Request) -> Response:
        """Pair better with worse rollouts of the same task.

        Small collections are paired at once; large ones by a worker, and `state` is `ready` when it has finished.
        """
        pair_set = order_pairs(PairOrder(**self.read_body(PairRuleSerializer)), user=self.user)
        return Response(PairSetSerializer(pair_set).data, status=HTTPStatus.CREATED)

    @operation(detail=False, request=PairPreviewRuleSerializer, responses=PairPreviewSerializer)
    def count(self, request: Request) -> Response:
        """Return the number of pairs that a rule makes, and the first of them.

        Stores nothing. Counts for at most 1.5 seconds.
        """
        rule = self.read_body(PairPreviewRuleSerializer)
        max_pairs = rule.pop("limit", 0)
        order = PairOrder(**rule)
        preview = count_pairs(check_collections(order), order.rule, max_pairs=max_pairs)
        return Response(PairPreviewSerializer(preview).data)

    @operation(request=AskSerializer, responses={201: QueueSerializer})
    def ask(self, request: Request, pk: str) -> Response:
        """Create a pairwise queue of proposed pairs, smallest margin first.

        Verdicts count in the next version of the set.
        """
        queue = create_pair_queue(pair_set=self.get_object(), **self.read_body(AskSerializer), user=self.user)
        return Response(QueueSerializer(queue).data, status=HTTPStatus.CREATED)

    cancel = row_action("cancel", cancel_pair_set, "Cancel building the set.")
    perform_destroy = row_deletion(delete_pair_set, "Delete the set with its pairs.")

    @operation(
        "get",
        responses=PairSetChangesSerializer,
        parameters=[OpenApiParameter("since", int, description="An earlier version. Default: the previous one.")],
    )
    def changes(self, request: Request, pk: str) -> Response:
        """Return what changed since the previous or an earlier version."""
        since = read_integer(request, "since", high=10**9 - 1, message="Give the number of a version.")
        return Response(PairSetChangesSerializer(compare_pair_sets(self.get_object(), since=since)).data)


class PairViewSet(RowViewSet):
    queryset = PreferencePair.objects.all()
    serializer_class = PairSerializer
    filterset_class = PairFilter
    ordering = "id"
    permissions = {
        **dict.fromkeys(["list", "retrieve", "decisions", "reviews"], Permission.READ),
        **dict.fromkeys(["decide", "decide_many"], Permission.PAIR),
    }
    page_actions = frozenset({"list", "decisions"})

    @operation(request=PairVerdictSerializer, responses=PairSerializer)
    def decide(self, request: Request, pk: str) -> Response:
        """Accept or reject a pair, or reset it to `proposed`."""
        verdict = self.read_body(PairVerdictSerializer)
        pair: PreferencePair = self.get_object()
        decide_pairs(pairs=[pair], **verdict, user=self.user)
        pair.refresh_from_db()
        return Response(PairSerializer(pair).data)

    @operation(
        detail=False,
        url_path="decide",
        operation_id="pairs_decide_many",
        request=PairVerdictsSerializer,
        responses=DecidedSerializer,
    )
    def decide_many(self, request: Request) -> Response:
        """Decide many pairs at once."""
        return Response({"changed": decide_pairs(**self.read_body(PairVerdictsSerializer), user=self.user)})

    @operation("get", filterset_class=None, responses=DecisionSerializer(many=True))
    def decisions(self, request: Request, pk: str) -> Response:
        """List the decisions on the pair, oldest first."""
        rows = PairDecision.objects.filter(pair=self.get_object()).select_related("user")
        return self.answer_page(DecisionSerializer, rows)

    @operation(
        "get",
        filterset_class=None,
        pagination_class=None,
        operation_id="pairs_reviews",
        responses=OpinionSerializer(many=True),
    )
    def reviews(self, request: Request, pk: str) -> Response:
        """List the reviews behind a pair's verdict: votes in order, then the adjudication."""
        return Response(OpinionSerializer(read_opinions(self.get_object()), many=True).data)
