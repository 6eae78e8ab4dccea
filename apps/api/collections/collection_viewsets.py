"""Collections: dataset × agent × policy model × repeats, and their results."""

from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.collections.breakdown_actions import FigureViewSet
from apps.api.collections.collection_serializers import CollectionDetailSerializer, CollectionSerializer
from apps.api.collections.figure_serializers import MetricsSerializer, ServerMetricsSerializer
from apps.api.collections.import_actions import ImportActions
from apps.api.collections.plan_actions import PlanningActions
from apps.api.collections.steering_actions import SteeringActions
from apps.api.collections.task_change_actions import TaskChangeActions
from apps.api.deletion_viewsets import ChosenSerializer, CollectionDeletionSerializer, answer_deletion
from apps.api.framework.base_viewsets import RowViewSet, operation
from apps.api.framework.query_filters import FlagFilter, SlugFilter, WordsFilter
from apps.exports.rechecks.stale_outputs import collections_to_recheck
from apps.reviews.agreement.reward_agreement import read_reward_agreement
from apps.rollouts.metrics.cached_figures import fresh_figures
from apps.rollouts.models import Collection, CollectionQuerySet, ServerMetrics
from apps.rollouts.search.keyset_pages import Sort
from apps.rollouts.search.list_search import COLLECTION_ORDERS
from apps.rollouts.server_metrics.aggregate_requests import request_server_metrics
from apps.rollouts.steering.collection_deletion import queue_collection_deletion
from apps.rollouts.steering.rollout_deletion import queue_rollout_deletion


class CollectionFilter(django_filters.FilterSet):
    q = WordsFilter()
    state = django_filters.ChoiceFilter(choices=Collection.State.choices)
    dataset = SlugFilter("dataset")
    environment = SlugFilter("environment")
    agent = SlugFilter("agent")
    policy_model = SlugFilter("policy_model")
    archived = django_filters.ChoiceFilter(
        choices=[("true", "only archived collections"), ("all", "include archived collections")],
        method="filter_archived",
        label="Default: exclude archived collections.",
    )
    earlier_rules = FlagFilter(
        "rules_version",
        method="filter_rules",
        label="Collections that need a recheck: stored under earlier rules, or with exports without column types.",
    )

    def filter_rules(self, queryset: CollectionQuerySet, name: str, value: bool | None) -> CollectionQuerySet:
        earlier = collections_to_recheck().order_by().values("pk")
        return (
            queryset
            if value is None
            else queryset.filter(pk__in=earlier)
            if value
            else queryset.exclude(pk__in=earlier)
        )

    def filter_archived(self, queryset: CollectionQuerySet, name: str, value: str) -> CollectionQuerySet:
        return queryset.filter(archived_at__isnull=False) if value == "true" else queryset


class CollectionViewSet(RowViewSet, PlanningActions, ImportActions, SteeringActions, TaskChangeActions, FigureViewSet):
    queryset = Collection.objects.present().select_related("dataset", "version", "environment", "agent", "policy_model")
    serializer_class = CollectionSerializer
    filterset_class = CollectionFilter
    orders = COLLECTION_ORDERS
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "create": Permission.COLLECT,
        "import_stored": Permission.COLLECT,
        "estimate": Permission.COLLECT,
        "clone": Permission.COLLECT,
        "archive": Permission.COLLECT,
        "restore": Permission.COLLECT,
        "destroy": Permission.COLLECT,
        "delete_rollouts": Permission.COLLECT,
        "partial_update": Permission.COLLECT,
        "pause": Permission.COLLECT,
        "resume": Permission.COLLECT,
        "cancel": Permission.COLLECT,
        "retry": Permission.COLLECT,
        "resolve_flags": Permission.EXPORT,
        "metrics": Permission.READ,
        "server_metrics": Permission.READ,
        "request_server_metrics": Permission.COLLECT,
        "breakdown": Permission.READ,
        "profile": Permission.READ,
        "contrast": Permission.READ,
        "changes": Permission.READ,
        "failures": Permission.READ,
        "gate": Permission.READ,
        "matrix": Permission.READ,
    }

    # Plans store their key: a repeated request returns the current collection, as long as it exists.
    own_idempotency = frozenset({"create", "clone"})
    problems = {"contrast": {409}, "changes": {409}, "gate": {409}, "request_server_metrics": {409}}

    def expect(self, request: Request, sort: Sort) -> tuple[bool, bool]:
        return True, True

    def get_queryset(self) -> Any:
        rows: Any = super().get_queryset()
        return rows.listed() if self.action == "list" and not self.request.query_params.get("archived") else rows

    def get_serializer_class(self) -> type[CollectionSerializer]:
        return CollectionDetailSerializer if self.action == "retrieve" else CollectionSerializer

    @extend_schema(responses={202: CollectionDeletionSerializer})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete the collection with its rollouts, traces and pairs.

        A worker deletes in the background. The list of deletions shows the progress.
        """
        return answer_deletion(queue_collection_deletion(collection=self.get_object(), user=self.user))

    @operation(request=ChosenSerializer, responses={202: CollectionDeletionSerializer})
    def delete_rollouts(self, request: Request, pk: str) -> Response:
        """Delete some rollouts of a finished collection, with traces and comments.

        A worker deletes in the background. The list of deletions shows the progress. The collection stays and updates
        its counters.
        """
        chosen = self.read_body(ChosenSerializer)
        return answer_deletion(queue_rollout_deletion(collection=self.get_object(), chosen=chosen, user=self.user))

    @operation("get", responses=MetricsSerializer)
    def metrics(self, request: Request, pk: str) -> Response:
        """Return rewards, pass@k, solve buckets, stop reasons and errors."""
        collection = self.get_object()
        figures, blind = fresh_figures(collection), read_reward_agreement(collection)
        given = {**vars(figures.metrics), "as_of": figures.as_of, "blind_reviews": blind}
        return Response(MetricsSerializer(given).data)

    @operation("get", responses=ServerMetricsSerializer)
    def server_metrics(self, request: Request, pk: str) -> Response:
        """Return the metrics that the server of the environment computed. 404 if they were never requested."""
        found = get_object_or_404(ServerMetrics.objects.select_related("collection"), collection=self.get_object())
        return Response(ServerMetricsSerializer(found).data)

    @operation(responses={202: ServerMetricsSerializer})
    def request_server_metrics(self, request: Request, pk: str) -> Response:
        """Ask the server of the environment for its metrics again, in the background. Poll `server_metrics/`."""
        queued = request_server_metrics(collection=self.get_object(), user=self.user)
        return Response(ServerMetricsSerializer(queued).data, status=202)
