"""Rollouts and their traces."""

from decimal import Decimal
from typing import Any

import django_filters
import orjson
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.collections.deletion_viewsets import CollectionDeletionSerializer, answer_deletion
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.operation_schemas import whole
from apps.api.framework.pagination import KeysetPagination
from apps.api.framework.problems import QueryProblem
from apps.api.framework.query_filters import FlagFilter, IdFilter
from apps.api.rollouts.segment_actions import RolloutTokensSerializer, read_tokens
from apps.gym.traces.items import dump_json
from apps.rollouts.metrics.attempt_history import OUTCOMES, read_attempts
from apps.rollouts.models import Rollout, RolloutQuerySet
from apps.rollouts.search.filters.filter_grammar import FilterRefused, Term, Text
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH, parse_filter
from apps.rollouts.search.filters.filtered_rollouts import filter_rollouts
from apps.rollouts.search.filters.query_time_limit import bound_time
from apps.rollouts.search.filters.text_search import MANY, count_unindexed
from apps.rollouts.search.rollout_order import SORTS, Sort, expect_values
from apps.rollouts.steering.flag_resolution import resolve_flag
from apps.rollouts.steering.rollout_deletion import queue_rollout_deletion

MAX_NUMBER = 999_999_999
ORDERS = {
    "reward": SORTS["reward"],
    "turns": SORTS["steps"],
    "tool_calls": SORTS["calls"],
    "tokens": SORTS["tokens"],
    "duration": SORTS["seconds"],
    "cost": SORTS["cost"],
}
"""The table's orders by the names of the fields here; `tokens` is of input and output together."""
ATTEMPT = OpenApiParameter("attempt", whole(0, MAX_NUMBER), description="Which attempt; left out: the latest.")


class RolloutSerializer(serializers.ModelSerializer[Rollout]):
    components = serializers.DictField(child=serializers.FloatField(), read_only=True)
    redactions = serializers.DictField(
        child=serializers.IntegerField(),
        read_only=True,
        help_text="Credentials that were taken out of its trace before it was stored, by kind.",
    )

    class Meta:
        model = Rollout
        fields = [
            "id",
            "collection",
            "task",
            "repeat",
            "seed",
            "status",
            "attempt",
            "failures",
            "lost",
            "model_version",
            "reward",
            "components",
            "stop_reason",
            "error_kind",
            "error_message",
            "turns",
            "tool_calls",
            "tool_errors",
            "input_tokens",
            "output_tokens",
            "judge_calls",
            "judge_tokens",
            "calls_without_usage",
            "cost",
            "duration",
            "started_at",
            "finished_at",
            "redactions",
            "flagged",
        ]


class TraceEventSerializer(serializers.Serializer[Any]):
    seq = serializers.IntegerField()
    kind = serializers.CharField()
    event = serializers.DictField(help_text="The event as it was recorded; `type` names its kind.")


class TraceSerializer(serializers.Serializer[Any]):
    rollout = serializers.IntegerField()
    attempt = serializers.IntegerField()
    events = TraceEventSerializer(many=True)


class RolloutFilter(django_filters.FilterSet):
    collection = IdFilter("collection", method="of_collection")
    task = IdFilter("task")
    worker = IdFilter("lease", method="run_by", label="Those that this worker runs now.")
    status = django_filters.ChoiceFilter(choices=Rollout.Status.choices)
    model_version = django_filters.CharFilter(field_name="model_version")
    stop_reason = django_filters.CharFilter(field_name="stop_reason")
    error_kind = django_filters.CharFilter(field_name="error_kind")
    flagged = FlagFilter("flagged")
    lacks_usage = FlagFilter(
        "lacks_usage", method="lacking_usage", label="Those with replies that did not tell their tokens."
    )
    rewarded = FlagFilter("reward", lookup_expr="isnull", exclude=True)
    reward_min = django_filters.NumberFilter(field_name="reward", lookup_expr="gte")
    reward_max = django_filters.NumberFilter(field_name="reward", lookup_expr="lte")
    q = django_filters.CharFilter(
        method="in_words",
        max_length=MAX_LENGTH,
        label='A filter in words, as the page of rollouts takes it: `reward:>0.5 -flag:truncated text:"cannot find"`.',
    )

    class Meta:
        model = Rollout
        fields: list[str] = []

    def lacking_usage(self, rollouts: RolloutQuerySet, name: str, lacks: bool) -> RolloutQuerySet:
        return rollouts.lacking_usage() if lacks else rollouts.filter(calls_without_usage=0)

    def in_words(self, rollouts: RolloutQuerySet, name: str, text: str) -> RolloutQuerySet:
        try:
            return filter_rollouts(rollouts, text)
        except FilterRefused as refusal:
            code = "unknown" if refusal.key else "invalid"
            message = f"At character {refusal.start + 1}: {refusal}"
            raise QueryProblem([{"pointer": "?q", "code": code, "message": message}]) from None

    def of_collection(self, rollouts: RolloutQuerySet, name: str, collection_id: Decimal) -> RolloutQuerySet:
        return rollouts.of_collection(int(collection_id))

    def run_by(self, rollouts: RolloutQuerySet, name: str, worker_id: Decimal) -> RolloutQuerySet:
        return rollouts.run_by(int(worker_id))


_TERMS = {"status": "status", "error_kind": "error", "reward_min": "reward", "reward_max": "reward"}
"""Parameters that say which rows have a value, and the keys of the filter in words that mean the same."""


class AttemptSerializer(serializers.Serializer[Any]):
    attempt = serializers.IntegerField()
    events = serializers.IntegerField()
    outcome = serializers.ChoiceField(choices=OUTCOMES, help_text="`cut_off`: its worker was lost or gave it back.")
    error_kind = serializers.CharField(allow_blank=True)
    message = serializers.CharField(allow_blank=True)


class RolloutPagination(KeysetPagination):
    """Says of a search how many rollouts no text finds yet."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        parsed = parse_filter(request.query_params.get("q", ""))
        self.unindexed = count_unindexed() if parsed.asks_for("text") else None
        with bound_time(parsed, always=True):
            return super().paginate_queryset(queryset, request, view)

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        response.data["unindexed"] = self.unindexed
        return response

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        described = super().get_paginated_response_schema(schema)
        described["required"].append("unindexed")
        described["properties"]["unindexed"] = {"type": "integer", "nullable": True, "description": _UNINDEXED}
        return described


_UNINDEXED = (
    "Where `q` looks for a text: how many rollouts have ended that no text finds yet, since nobody has read them. "
    f"Nobody counts beyond {MANY:,}: one more stands for any number. Else null."
)


class RolloutViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Rollout.objects.all()
    serializer_class = RolloutSerializer
    filterset_class = RolloutFilter
    lookup_value_regex = "[0-9]+"
    permissions = {
        "list": Permission.READ,
        "retrieve": Permission.READ,
        "trace": Permission.READ,
        "tokens": Permission.READ,
        "attempts": Permission.READ,
        "resolve_flag": Permission.EXPORT,
        "destroy": Permission.COLLECT,
    }
    problems = {"tokens": {409}}
    query_parameters = {"trace": frozenset({"attempt", "after"}), "tokens": frozenset({"attempt"})}
    orders = ORDERS
    pagination_class = RolloutPagination

    def expect(self, request: Request, sort: Sort) -> tuple[bool, bool]:
        """Whether the filters leave rows with a value, and rows without one."""
        given = request.query_params
        terms = list(parse_filter(given.get("q", "")).terms)
        terms += [Term(key, (Text(given[name]),)) for name, key in _TERMS.items() if given.get(name)]
        some, none = expect_values(sort, terms)
        if sort.marker == "reward" and (rewarded := given.get("rewarded", "").lower()):
            some, none = some and rewarded == "true", none and rewarded == "false"
        return some, none

    @extend_schema(responses={202: CollectionDeletionSerializer})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete it with its traces and comments, once its collection has ended: a worker does it, and the answer's
        address tells when."""
        rollout = self.get_object()
        deletion = queue_rollout_deletion(collection=rollout.collection, chosen={"ids": [rollout.pk]}, user=self.person)
        return answer_deletion(deletion)

    @extend_schema(request=None, responses=RolloutSerializer)
    @action(detail=True, methods=["post"])
    def resolve_flag(self, request: Request, pk: str) -> Response:
        """Say that somebody has looked at what was redacted of it: exports take it again."""
        return Response(RolloutSerializer(resolve_flag(rollout=self.get_object(), user=self.person)).data)

    @extend_schema(
        responses=TraceSerializer,
        parameters=[
            ATTEMPT,
            OpenApiParameter("after", whole(0, MAX_NUMBER), description="Only the events after this `seq`."),
        ],
    )
    @action(detail=True)
    def trace(self, request: Request, pk: str) -> HttpResponse:
        """The events of one attempt, in order. They are there while it runs, a moment after they happened."""
        rollout = self.get_object()
        attempt = _read_number(request, "attempt", rollout.attempt)
        after = _read_number(request, "after", -1)
        rows = rollout.events.filter(attempt=attempt, seq__gt=after).order_by("seq")
        events = rows.values_list("seq", "kind", "payload")
        # The payloads are JSON as recorded: joining them keeps every number and key as it was, and decodes nothing.
        parts = [f'{{"seq":{seq},"kind":{dump_json(kind)},"event":{payload}}}' for seq, kind, payload in events]
        body = f'{{"rollout":{rollout.pk},"attempt":{attempt},"events":[{",".join(parts)}]}}'
        return HttpResponse(body, content_type="application/json")

    @extend_schema(
        responses=RolloutTokensSerializer,
        parameters=[
            OpenApiParameter("attempt", whole(0, MAX_NUMBER), description="Which attempt; left out: the latest.")
        ],
    )
    @action(detail=True)
    def tokens(self, request: Request, pk: str) -> HttpResponse:
        """The captured calls of one attempt joined into sequences to train on, and what the prefix check found."""
        rollout = self.get_object()
        body = read_tokens(rollout, _read_number(request, "attempt", rollout.attempt))
        return HttpResponse(orjson.dumps(body), content_type="application/json")

    @extend_schema(responses=AttemptSerializer(many=True))
    @action(detail=True, pagination_class=None, filter_backends=[])
    def attempts(self, request: Request, pk: str) -> Response:
        """What became of each attempt at it, the first one first. `?attempt=` of `trace` has its events."""
        return Response(AttemptSerializer(read_attempts(self.get_object()), many=True).data)


def _read_number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise QueryProblem([{"pointer": f"?{name}", "code": "invalid", "message": "Give a whole number from 0 on."}])
    return int(text)
