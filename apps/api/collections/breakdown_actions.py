"""What a collection's figures are made of: by split, tag or version, task by task, and beside another collection."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.collections.figure_serializers import AS_OF, FiguresSerializer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.operation_schemas import whole
from apps.api.framework.pagination import MAX_KEY
from apps.api.framework.problems import QueryProblem
from apps.rollouts.metrics.breakdowns import break_down
from apps.rollouts.metrics.collection_comparison import contrast_collections
from apps.rollouts.metrics.labels import FACETS, MAX_LABELS
from apps.rollouts.metrics.task_profiles import BUCKETS, profile_tasks
from apps.rollouts.models import Collection

MAX_PROFILES = 1_000
DEFAULT_PROFILES = 100
QUERY_PARAMETERS = {
    "breakdown": frozenset({"by"}),
    "profile": frozenset({"after", "limit", "bucket"}),
    "contrast": frozenset({"with"}),
}


class ShareSerializer(FiguresSerializer):
    label = serializers.CharField(allow_blank=True, help_text="Empty: no split, tag or version was given.")  # type: ignore[assignment]


class BreakdownSerializer(serializers.Serializer[Any]):
    as_of = serializers.DateTimeField(help_text=AS_OF)
    results = ShareSerializer(source="shares", many=True)
    left_out = serializers.IntegerField(
        help_text=f"Labels with fewer rollouts than these: the {MAX_LABELS} with the most are measured."
    )


class ProfileSerializer(serializers.Serializer[Any]):
    task = serializers.IntegerField()
    index = serializers.IntegerField(help_text="Its position in the dataset version, from 0.")
    external_id = serializers.CharField(allow_blank=True)
    prompt_excerpt = serializers.CharField(allow_blank=True)
    rollouts = serializers.IntegerField()
    rewarded = serializers.IntegerField()
    solved = serializers.IntegerField(help_text="With full marks.")
    failed = serializers.IntegerField()
    mean_reward = serializers.FloatField(allow_null=True)
    std = serializers.FloatField(allow_null=True)
    min_reward = serializers.FloatField(allow_null=True)
    max_reward = serializers.FloatField(allow_null=True)
    mean_output_tokens = serializers.FloatField()


class ProfilePageSerializer(serializers.Serializer[Any]):
    results = ProfileSerializer(many=True)
    next_after = serializers.IntegerField(allow_null=True, help_text="Give it as `after` for the next page.")


class IntervalSerializer(serializers.Serializer[Any]):
    mean = serializers.FloatField()
    low = serializers.FloatField()
    high = serializers.FloatField()


class ChangeSerializer(serializers.Serializer[Any]):
    task = serializers.IntegerField()
    other_task = serializers.IntegerField()
    prompt_excerpt = serializers.CharField(allow_blank=True)
    mean_reward = serializers.FloatField()
    other_mean_reward = serializers.FloatField()
    difference = serializers.FloatField()


class ContrastSerializer(serializers.Serializer[Any]):
    tasks = serializers.IntegerField(help_text="Those that both have rewards for.")
    mean_reward = serializers.FloatField(allow_null=True, help_text="The mean over tasks of this collection.")
    other_mean_reward = serializers.FloatField(allow_null=True)
    interval = IntervalSerializer(allow_null=True, help_text="Paired difference by task, other less this, with 95 %.")
    improved = serializers.IntegerField()
    regressed = serializers.IntegerField()
    newly_solved = serializers.IntegerField(help_text="Tasks that the other solves in half of its attempts or more.")
    no_longer_solved = serializers.IntegerField()
    p_value = serializers.FloatField(help_text="McNemar's exact test of the two numbers before.")
    differs = serializers.DictField(
        child=serializers.ListField(child=serializers.JSONField()),
        help_text="Settings by path: this one's, the other's.",
    )
    regressions = ChangeSerializer(many=True)
    improvements = ChangeSerializer(many=True)


class FigureViewSet(TableViewSet):
    """The part of the viewset of collections that reads figures."""

    @extend_schema(
        responses=BreakdownSerializer,
        parameters=[OpenApiParameter("by", OpenApiTypes.STR, enum=list(FACETS), default="split")],
    )
    @action(detail=True, pagination_class=None, filter_backends=[])
    def breakdown(self, request: Request, pk: str) -> Response:
        """The figures by split, by tag or by version of the model, the largest share first. By tag, a task counts for
        each of its tags; by version, a group is the attempts at a task that began with one version."""
        by = request.query_params.get("by", "split")
        facet = next((each for each in FACETS if each == by), None)
        if facet is None:
            raise _bad("by", f"There is no breakdown by {by}: choose one of {', '.join(FACETS)}.")
        as_of, breakdown = timezone.now(), break_down(self.get_object(), facet)
        return Response(BreakdownSerializer({**breakdown._asdict(), "as_of": as_of}).data)

    @extend_schema(
        responses=ProfilePageSerializer,
        parameters=[
            OpenApiParameter("after", whole(0, MAX_KEY), description="Only tasks with a higher id."),
            OpenApiParameter("limit", whole(1, MAX_PROFILES), description="Tasks in a page.", default=DEFAULT_PROFILES),
            OpenApiParameter("bucket", OpenApiTypes.STR, enum=list(BUCKETS)),
        ],
    )
    @action(detail=True, pagination_class=None, filter_backends=[])
    def profile(self, request: Request, pk: str) -> Response:
        """Task by task: attempts, full marks, spread of the rewards."""
        bucket = request.query_params.get("bucket")
        found = next((each for each in BUCKETS if each == bucket), None)
        if bucket is not None and found is None:
            raise _bad("bucket", f"There is no bucket {bucket}: choose one of {', '.join(BUCKETS)}.")
        after = _number(request, "after", default=0, low=0, high=MAX_KEY)
        limit = _number(request, "limit", default=DEFAULT_PROFILES, low=1, high=MAX_PROFILES)
        profiles = profile_tasks(self.get_object(), after=after, limit=limit, bucket=found)
        following = profiles[-1].task if len(profiles) == limit else None
        return Response(ProfilePageSerializer({"results": profiles, "next_after": following}).data)

    @extend_schema(
        responses=ContrastSerializer,
        parameters=[OpenApiParameter("with", whole(1, MAX_KEY), required=True, description="The other collection.")],
    )
    @action(detail=True, pagination_class=None, filter_backends=[])
    def contrast(self, request: Request, pk: str) -> Response:
        """This collection beside another of the same dataset, task by task."""
        number = _number(request, "with", default=None, low=1, high=MAX_KEY)
        other = Collection.objects.select_related("dataset").filter(pk=number).first()
        if other is None:
            raise _bad("with", f"There is no collection {number}.")
        return Response(ContrastSerializer(contrast_collections(self.get_object(), other)).data)


def _number(request: Request, name: str, *, default: int | None, low: int, high: int) -> int:
    given = request.query_params.get(name)
    if given is None and default is not None:
        return default
    is_number = given is not None and given.isascii() and given.isdigit() and len(given) <= 19
    if not is_number or not low <= int(given or 0) <= high:
        raise _bad(name, f"`{name}` is a whole number from {low} to {high}.")
    return int(given or 0)


def _bad(name: str, message: str) -> QueryProblem:
    return QueryProblem([{"pointer": f"?{name}", "code": "invalid", "message": message}])
