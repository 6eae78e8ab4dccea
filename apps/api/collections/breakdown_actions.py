"""Figures of a collection by split, tag or model version, by task, and compared with another collection."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.collections.figure_serializers import AS_OF, FiguresSerializer
from apps.api.framework.base_viewsets import TableViewSet, operation
from apps.api.framework.operation_schemas import integer_schema
from apps.api.framework.pagination import MAX_KEY
from apps.api.framework.problems import bad_query
from apps.api.framework.query_filters import read_choice, read_integer
from apps.api.framework.record_serializers import make_serializer, record_serializer
from apps.rollouts.metrics.collection_comparison import Contrast, contrast_collections
from apps.rollouts.metrics.label_figures import break_down
from apps.rollouts.metrics.labels import FACETS, MAX_LABELS
from apps.rollouts.metrics.task_profiles import BUCKETS, Profile, profile_tasks
from apps.rollouts.models import Collection

MAX_PROFILES = 1_000
DEFAULT_PROFILES = 100
QUERY_PARAMETERS = {
    "breakdown": frozenset({"by"}),
    "profile": frozenset({"after", "limit", "bucket"}),
    "contrast": frozenset({"with"}),
}


class ShareSerializer(FiguresSerializer):
    label = serializers.CharField(allow_blank=True, help_text="Empty if rows have no split, tag or version.")  # type: ignore[assignment]


class BreakdownSerializer(serializers.Serializer[Any]):
    as_of = serializers.DateTimeField(help_text=AS_OF)
    results = ShareSerializer(source="shares", many=True)
    left_out = serializers.IntegerField(
        help_text=f"Number of labels left out; the {MAX_LABELS} with the most rollouts are measured."
    )


ProfileSerializer = make_serializer(
    "Profile",
    Profile,
    index="Its position in the dataset version, from 0.",
    rollouts="Rollouts of the plan.",
    missing="Rollouts of the plan without a reward.",
    solved="With at least the solve threshold.",
)


class ProfilePageSerializer(serializers.Serializer[Any]):
    results = ProfileSerializer(many=True)
    next_after = serializers.IntegerField(allow_null=True, help_text="Pass it as `after` to get the next page.")


@record_serializer(
    Contrast,
    tasks="Tasks with rewards in both collections.",
    mean_reward="Mean over tasks of this collection.",
    newly_solved="Tasks that the other collection newly solves (at least half of the attempts).",
    p_value="p value of McNemar's exact test.",
    permutation_p_value="p value of the paired permutation test of the mean rewards by task.",
    interval="Mean paired difference by task (other minus this), with 95 % interval; null for fewer than five tasks.",
)
class ContrastSerializer(serializers.Serializer[Any]):
    grid = None
    differs = serializers.DictField(
        child=serializers.ListField(child=serializers.JSONField()),
        help_text="Differing settings by path: value here, value of the other.",
    )


class FigureViewSet(TableViewSet):
    """Actions of the collection viewset that read figures."""

    @operation(
        "get",
        pagination_class=None,
        filter_backends=[],
        responses=BreakdownSerializer,
        parameters=[OpenApiParameter("by", OpenApiTypes.STR, enum=list(FACETS), default="split")],
    )
    def breakdown(self, request: Request, pk: str) -> Response:
        """Return the figures by split, tag or model version, largest share first.

        By tag, a task counts once for each of its tags; by version, a group is the attempts at a task that started with
        one version.
        """
        facet = read_choice(request, "by", FACETS, default="split", message="Unknown breakdown {}. Choose one of {}.")
        as_of, breakdown = timezone.now(), break_down(self.get_object(), facet)
        return Response(BreakdownSerializer({**breakdown._asdict(), "as_of": as_of}).data)

    @operation(
        "get",
        pagination_class=None,
        filter_backends=[],
        responses=ProfilePageSerializer,
        parameters=[
            OpenApiParameter("after", integer_schema(0, MAX_KEY), description="Only tasks with a higher id."),
            OpenApiParameter(
                "limit", integer_schema(1, MAX_PROFILES), description="Tasks per page.", default=DEFAULT_PROFILES
            ),
            OpenApiParameter("bucket", OpenApiTypes.STR, enum=list(BUCKETS)),
        ],
    )
    def profile(self, request: Request, pk: str) -> Response:
        """Return expected, missing and solved attempts and the spread of rewards of each task."""
        bucket = None
        if "bucket" in request.query_params:
            bucket = read_choice(request, "bucket", BUCKETS, message="Unknown bucket {}. Choose one of {}.")
        after = read_integer(request, "after") or 0
        limit = read_integer(request, "limit", low=1, high=MAX_PROFILES) or DEFAULT_PROFILES
        profiles = profile_tasks(self.get_object(), after=after, limit=limit, bucket=bucket)
        following = profiles[-1].task if len(profiles) == limit else None
        return Response(ProfilePageSerializer({"results": profiles, "next_after": following}).data)

    @operation(
        "get",
        pagination_class=None,
        filter_backends=[],
        responses=ContrastSerializer,
        parameters=[
            OpenApiParameter("with", integer_schema(1, MAX_KEY), required=True, description="The other collection.")
        ],
    )
    def contrast(self, request: Request, pk: str) -> Response:
        """Compare this collection with another one of the same dataset, task by task."""
        number = read_integer(request, "with", low=1)
        if number is None:
            raise bad_query("with", f"`with` must be a whole number from 1 to {MAX_KEY}.")
        other = Collection.objects.select_related("dataset").filter(pk=number).first()
        if other is None:
            raise bad_query("with", f"Collection {number} does not exist.")
        return Response(ContrastSerializer(contrast_collections(self.get_object(), other)).data)
