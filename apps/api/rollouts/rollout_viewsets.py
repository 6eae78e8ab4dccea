"""Rollouts and their traces."""

from decimal import Decimal
from typing import Any

import django_filters
import orjson
from django.db.models import Prefetch
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.deletion_viewsets import CollectionDeletionSerializer, answer_deletion
from apps.api.framework.base_viewsets import RowViewSet, operation, row_action
from apps.api.framework.pagination import KeysetPagination
from apps.api.framework.problems import QueryProblem
from apps.api.framework.query_filters import FlagFilter, IdFilter, IntegerParameter
from apps.api.framework.record_serializers import record_serializer
from apps.api.rollouts.segment_actions import RolloutTokensSerializer, read_tokens
from apps.api.rollouts.step_actions import ATTEMPT, FROM_ZERO, MAX_NUMBER, StepActions, read_attempt
from apps.gym.traces.items import dump_json
from apps.rollouts.metrics.attempt_history import OUTCOMES, PastAttempt, read_attempts
from apps.rollouts.models import Collection, Rollout, RolloutQuerySet
from apps.rollouts.search.filters.filter_grammar import FilterRefused, Term, Text
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH, parse_filter
from apps.rollouts.search.filters.filter_sql import filter_rollouts
from apps.rollouts.search.filters.query_time_limit import limit_query_time
from apps.rollouts.search.filters.text_search import MANY, count_unindexed
from apps.rollouts.search.keyset_pages import SORTS, Page, Sort, expect_values, read_rows
from apps.rollouts.steering.controls import resolve_flag
from apps.rollouts.steering.rollout_deletion import queue_rollout_deletion
from apps.tasks.stored_images import with_images

ORDERS = {
    "reward": SORTS["reward"],
    "turns": SORTS["steps"],
    "tool_calls": SORTS["calls"],
    "tokens": SORTS["tokens"],
    "duration": SORTS["seconds"],
    "cost": SORTS["cost"],
}
"""Sort orders by the field names of the API. `tokens` is the sum of input and output tokens."""
AFTER = IntegerParameter("after", 0, MAX_NUMBER, description="Only the events after this `seq`.", message=FROM_ZERO)


class RolloutSerializer(serializers.ModelSerializer[Rollout]):
    components = serializers.DictField(child=serializers.FloatField(), read_only=True)
    redactions = serializers.DictField(
        child=serializers.IntegerField(),
        read_only=True,
        help_text="Number of redacted credentials by kind.",
    )

    cost = serializers.FloatField(
        source="known_cost", read_only=True, allow_null=True, help_text="USD; null if the models have no prices."
    )
    notices = serializers.ListField(child=serializers.CharField(), source="notice_names", read_only=True)
    outcome = serializers.CharField(
        read_only=True, help_text="Stop reason, error kind, `masked` or `cancelled`; empty until the rollout has ended."
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
            "outcome",
            "stop_reason",
            "masked",
            "ambiguous_path",
            "notices",
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
            "retried_calls",
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
    event = serializers.DictField(help_text="The recorded event; `type` is its kind.")


class TraceSerializer(serializers.Serializer[Any]):
    rollout = serializers.IntegerField()
    attempt = serializers.IntegerField()
    events = TraceEventSerializer(many=True)


class RolloutFilter(django_filters.FilterSet):
    collection = IdFilter("collection", method="of_collection")
    task = IdFilter("task")
    worker = IdFilter("lease", method="run_by", label="Rollouts running on this worker.")
    status = django_filters.ChoiceFilter(choices=Rollout.Status.choices)
    model_version = django_filters.CharFilter(field_name="model_version")
    stop_reason = django_filters.CharFilter(field_name="stop_reason")
    error_kind = django_filters.CharFilter(field_name="error_kind")
    flagged = FlagFilter("flagged")
    lacks_usage = FlagFilter("lacks_usage", method="lacking_usage", label="Rollouts with replies without token counts.")
    rewarded = FlagFilter("reward", lookup_expr="isnull", exclude=True)
    reward_min = django_filters.NumberFilter(field_name="reward", lookup_expr="gte")
    reward_max = django_filters.NumberFilter(field_name="reward", lookup_expr="lte")
    q = django_filters.CharFilter(
        method="in_words",
        max_length=MAX_LENGTH,
        label='A filter, as on the rollouts page: `reward:>0.5 -flag:truncated text:"cannot find"`.',
    )

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
"""Parameters that decide which rows have a value, with the equivalent filter keys."""


@record_serializer(PastAttempt)
class AttemptSerializer(serializers.Serializer[Any]):
    outcome = serializers.ChoiceField(choices=OUTCOMES, help_text="`cut_off`: the worker was lost or released it.")


class RolloutPagination(KeysetPagination):
    """Adds the number of unindexed rollouts to searches."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        parsed = parse_filter(request.query_params.get("q", ""))
        self.unindexed = count_unindexed() if parsed.asks_for("text") else None
        with limit_query_time(parsed, always=True):
            return super().paginate_queryset(queryset, request, view)

    def sort(self, queryset: Any, sort: Sort, view: Any, *, after: str, **options: Any) -> Page[Any]:
        page = super().sort(queryset.only("pk", sort.marker), sort, view, after=after, **options)
        return read_rows(page, view.get_queryset())

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
    f"If `q` searches text: number of finished rollouts that are not indexed yet, at most {MANY:,} + 1. Otherwise null."
)


class RolloutViewSet(StepActions, RowViewSet):
    noun = "rollout"
    queryset = Rollout.objects.prefetch_related(
        Prefetch("collection", Collection.objects.select_related("policy_model").defer("snapshot", "prompt_template"))
    )
    serializer_class = RolloutSerializer
    filterset_class = RolloutFilter
    permissions = {
        **dict.fromkeys(["list", "retrieve", "trace", "steps", "side_by_side", "tokens", "attempts"], Permission.READ),
        "resolve_flag": Permission.EXPORT,
        "destroy": Permission.COLLECT,
    }
    problems = {"tokens": {409}, "side_by_side": {409}}
    orders = ORDERS
    pagination_class = RolloutPagination

    def expect(self, request: Request, sort: Sort) -> tuple[bool, bool]:
        """Return whether the filters can match rows with a value, and rows without one."""
        given = request.query_params
        terms = list(parse_filter(given.get("q", "")).terms)
        terms += [Term(key, (Text(given[name]),)) for name, key in _TERMS.items() if given.get(name)]
        some, none = expect_values(sort, terms)
        if sort.marker == "reward" and (rewarded := given.get("rewarded", "").lower()):
            some, none = some and rewarded == "true", none and rewarded == "false"
        return some, none

    @extend_schema(responses={202: CollectionDeletionSerializer})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a rollout of a finished collection with its traces and comments.

        A worker deletes in the background. The list of deletions shows the progress.
        """
        rollout = self.get_object()
        deletion = queue_rollout_deletion(collection=rollout.collection, chosen={"ids": [rollout.pk]}, user=self.user)
        return answer_deletion(deletion)

    resolve_flag = row_action(
        "resolve_flag", resolve_flag, "Resolve the credential flag: exports include the rollout again."
    )

    @operation(
        "get",
        responses=TraceSerializer,
        parameters=[ATTEMPT, AFTER],
    )
    def trace(self, request: Request, pk: str) -> HttpResponse:
        """Return the events of one attempt in order. While it runs, new events appear within moments."""
        rollout = self.get_object()
        attempt = read_attempt(request, rollout.attempt)
        after = AFTER.read(request)
        rows = rollout.events.filter(attempt=attempt, seq__gt=-1 if after is None else after).order_by("seq")
        events = rows.values_list("seq", "kind", "payload")
        # Payloads are stored JSON. Joining them keeps all numbers and keys unchanged, without decoding.
        parts = [
            f'{{"seq":{seq},"kind":{dump_json(kind)},"event":{with_images(payload)}}}' for seq, kind, payload in events
        ]
        body = f'{{"rollout":{rollout.pk},"attempt":{attempt},"events":[{",".join(parts)}]}}'
        return HttpResponse(body, content_type="application/json")

    @operation("get", responses=RolloutTokensSerializer, parameters=[ATTEMPT])
    def tokens(self, request: Request, pk: str) -> HttpResponse:
        """Return the captured tokens of one attempt as sequences to train on.

        Includes the result of the prefix check.
        """
        rollout = self.get_object()
        body = read_tokens(rollout, read_attempt(request, rollout.attempt))
        return HttpResponse(orjson.dumps(body), content_type="application/json")

    @operation("get", pagination_class=None, filter_backends=[], responses=AttemptSerializer(many=True))
    def attempts(self, request: Request, pk: str) -> Response:
        """List the attempts at this rollout and how each ended. `trace` with `?attempt=` returns their events."""
        return Response(AttemptSerializer(read_attempts(self.get_object()), many=True).data)
