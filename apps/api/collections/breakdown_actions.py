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
from apps.api.framework.operation_schemas import integer_schema, number_schema
from apps.api.framework.pagination import MAX_KEY
from apps.api.framework.problems import bad_query
from apps.api.framework.query_filters import read_choice, read_integer, read_number
from apps.api.framework.record_serializers import make_serializer, record_serializer
from apps.api.framework.spec_serializers import make_parameter
from apps.gym.rewards import MAX_REWARD
from apps.gym.specs import spec_fields
from apps.gym.traces.cause_texts import SOURCES
from apps.rollouts.failures.failure_groups import MAX_GROUPS, Failures, read_failures
from apps.rollouts.metrics.collection_comparison import Contrast, contrast_collections
from apps.rollouts.metrics.label_figures import break_down
from apps.rollouts.metrics.labels import FACETS, MAX_LABELS
from apps.rollouts.metrics.model_matrix import MAX_K, Matrix, MatrixRefused, MatrixSpec, build_matrix
from apps.rollouts.metrics.regression_gate import Gate, check_regression
from apps.rollouts.metrics.task_profiles import BUCKETS, Profile, profile_tasks
from apps.rollouts.models import Collection

MAX_PROFILES = 1_000
DEFAULT_PROFILES = 100
QUERY_PARAMETERS = {
    "breakdown": frozenset({"by"}),
    "profile": frozenset({"after", "limit", "bucket"}),
    "contrast": frozenset({"with"}),
    "failures": frozenset({"by", "limit", "offset"}),
    "gate": frozenset({"baseline", "max_drop", "alpha"}),
    "matrix": frozenset(spec_fields(MatrixSpec)),
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


FailuresSerializer = make_serializer(
    "Failures",
    Failures,
    unsolved="Rollouts that failed, or whose reward is below the solve threshold.",
    by_source="Unsolved rollouts that have a cause of each source.",
    waiting="Finished rollouts whose traces a worker has not read yet.",
    source="Verifier explanations, last tool errors, or errors that ended the attempt.",
    next_offset="Pass it as `offset` to get the next page; null on the last page.",
)
DEFAULT_GROUPS = 20
GateSerializer = make_serializer(
    "Gate",
    Gate,
    reason="Why, in one sentence.",
    tasks="Tasks with rewards in both collections.",
    missing_tasks="Tasks with a reward in the baseline only.",
    interval="Mean paired difference by task (candidate minus baseline), with 95 % interval; null for few tasks.",
    p_value="One-sided p value of the paired t-test; null for fewer than five tasks.",
    notices="Set-up notices of the candidate. They do not change the verdict.",
    baseline_notices="Set-up notices of the baseline.",
)
MatrixSerializer = make_serializer(
    "Matrix",
    Matrix,
    columns="Datasets, splits or tags; an empty name: tasks without a split or tag.",
    rows="Rows with the newest collections first. `cells` has a cell for each column; without a collection, its "
    "`collection` is null.",
    baseline="Name of the baseline row; empty: none.",
    mixed="Collections left out because their rollouts have several model versions.",
)
MAX_DROP = 0.0
ALPHA = 0.05


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
        return Response(ContrastSerializer(contrast_collections(self.get_object(), read_other(request, "with"))).data)

    @operation(
        "get",
        pagination_class=None,
        filter_backends=[],
        responses=FailuresSerializer,
        parameters=[
            OpenApiParameter(
                "by", OpenApiTypes.STR, enum=list(SOURCES), description="Default: the source with the most rollouts."
            ),
            OpenApiParameter(
                "limit", integer_schema(1, MAX_GROUPS), description="Groups per page.", default=DEFAULT_GROUPS
            ),
            OpenApiParameter("offset", integer_schema(0, MAX_KEY), description="Groups to skip."),
        ],
    )
    def failures(self, request: Request, pk: str) -> Response:
        """Group unsolved rollouts by cause, with counts and examples. Numbers, ids and quoted strings are replaced.

        The filter `cause:NUMBER` selects the rollouts of a group, `-cause:NUMBER` leaves them out.
        """
        source = None
        if "by" in request.query_params:
            source = read_choice(request, "by", SOURCES, message="Unknown source {}. Choose one of {}.")
        limit = read_integer(request, "limit", low=1, high=MAX_GROUPS) or DEFAULT_GROUPS
        offset = read_integer(request, "offset") or 0
        found = read_failures(self.get_object(), source, limit=limit, offset=offset)
        return Response(FailuresSerializer(found).data)

    @operation(
        "get",
        pagination_class=None,
        filter_backends=[],
        responses=GateSerializer,
        parameters=[
            OpenApiParameter(
                "baseline", integer_schema(1, MAX_KEY), required=True, description="The collection to compare with."
            ),
            OpenApiParameter(
                "max_drop",
                number_schema(0, MAX_REWARD),
                description="The drop of the mean reward that is accepted.",
                default=MAX_DROP,
            ),
            OpenApiParameter(
                "alpha",
                number_schema(1e-6, 0.5),
                description="Significance level: maximum probability that a candidate fails although its true drop is "
                "only `max_drop`.",
                default=ALPHA,
            ),
        ],
    )
    def gate(self, request: Request, pk: str) -> Response:
        """Check whether this collection is significantly worse than a baseline, for example in CI.

        `undecided` means that the collections cannot be compared yet; `reason` says why.
        """
        candidate = self.get_object()
        found = check_regression(
            candidate,
            read_other(request, "baseline"),
            max_drop=read_number(request, "max_drop", low=0.0, high=MAX_REWARD, default=MAX_DROP),
            alpha=read_number(request, "alpha", low=1e-6, high=0.5, default=ALPHA),
        )
        return Response(GateSerializer(found).data)

    @operation(
        "get",
        detail=False,
        pagination_class=None,
        filter_backends=[],
        responses=MatrixSerializer,
        parameters=[make_parameter(field) for field in spec_fields(MatrixSpec).values()],
    )
    def matrix(self, request: Request) -> Response:
        """Compare models or model versions across datasets, splits or tags, each with its latest finished collection.

        Differences to the baseline are paired by task.
        """
        fields = spec_fields(MatrixSpec)
        given = request.query_params
        chosen: dict[str, Any] = {
            name: read_choice(request, name, fields[name].choices, default=fields[name].default)
            for name in ("rows", "columns")
        }
        spec = MatrixSpec(
            **chosen,
            dataset=given.get("dataset", ""),
            suite=given.get("suite", ""),
            baseline=given.get("baseline", ""),
            k=read_integer(request, "k", low=1, high=MAX_K),
        )
        try:
            return Response(MatrixSerializer(build_matrix(spec)).data)
        except MatrixRefused as refusal:
            raise bad_query(refusal.argument, str(refusal)) from None


def read_other(request: Request, name: str) -> Collection:
    """Return the collection that a required query parameter names. Raise QueryProblem."""
    number = read_integer(request, name, low=1)
    if number is None:
        raise bad_query(name, f"`{name}` must be a whole number from 1 to {MAX_KEY}.")
    other = Collection.objects.select_related("dataset").filter(pk=number).first()
    if other is None:
        raise bad_query(name, f"Collection {number} does not exist.")
    return other
