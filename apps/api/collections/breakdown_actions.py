"""Figures of a collection by split, tag or model version, by task, and compared with another collection."""

from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.collections.figure_serializers import AS_OF, FiguresSerializer
from apps.api.framework.base_viewsets import TableViewSet, operation
from apps.api.framework.problems import bad_query
from apps.api.framework.query_filters import (
    ChoiceParameter,
    IntegerParameter,
    NumberParameter,
    read_choice,
    read_integer,
)
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

BY = ChoiceParameter("by", FACETS, default="split", message="Unknown breakdown {}. Choose one of {}.")
AFTER_TASK = IntegerParameter("after", description="Only tasks with a higher id.")
TASKS = IntegerParameter("limit", 1, 1_000, description="Tasks per page.", default=100)
BUCKET = ChoiceParameter("bucket", BUCKETS, message="Unknown bucket {}. Choose one of {}.")
OTHER = IntegerParameter("with", 1, required=True, description="The other collection.")
SOURCE = ChoiceParameter(
    "by",
    SOURCES,
    description="Default: the source with the most rollouts.",
    message="Unknown source {}. Choose one of {}.",
)
GROUPS = IntegerParameter("limit", 1, MAX_GROUPS, description="Groups per page.", default=20)
OFFSET = IntegerParameter("offset", description="Groups to skip.")
BASELINE = IntegerParameter("baseline", 1, required=True, description="The collection to compare with.")
MAX_DROP = NumberParameter(
    "max_drop", 0, MAX_REWARD, description="The drop of the mean reward that is accepted.", default=0.0
)
ALPHA = NumberParameter(
    "alpha",
    1e-6,
    0.5,
    description="Significance level: maximum probability that a candidate fails although its true drop is only "
    "`max_drop`.",
    default=0.05,
)


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


class FigureViewSet(TableViewSet):
    """Actions of the collection viewset that read figures."""

    @operation("get", responses=BreakdownSerializer, parameters=[BY])
    def breakdown(self, request: Request, pk: str) -> Response:
        """Return the figures by split, tag or model version, largest share first.

        By tag, a task counts once for each of its tags; by version, a group is the attempts at a task that started with
        one version.
        """
        as_of, breakdown = timezone.now(), break_down(self.get_object(), BY.read(request))
        return Response(BreakdownSerializer({**breakdown._asdict(), "as_of": as_of}).data)

    @operation("get", responses=ProfilePageSerializer, parameters=[AFTER_TASK, TASKS, BUCKET])
    def profile(self, request: Request, pk: str) -> Response:
        """Return expected, missing and solved attempts and the spread of rewards of each task."""
        bucket, after, limit = BUCKET.read(request), AFTER_TASK.read(request) or 0, TASKS.read(request)
        profiles = profile_tasks(self.get_object(), after=after, limit=limit, bucket=bucket)
        following = profiles[-1].task if len(profiles) == limit else None
        return Response(ProfilePageSerializer({"results": profiles, "next_after": following}).data)

    @operation("get", responses=ContrastSerializer, parameters=[OTHER])
    def contrast(self, request: Request, pk: str) -> Response:
        """Compare this collection with another one of the same dataset, task by task."""
        return Response(ContrastSerializer(contrast_collections(self.get_object(), read_other(request, OTHER))).data)

    @operation("get", responses=FailuresSerializer, parameters=[SOURCE, GROUPS, OFFSET])
    def failures(self, request: Request, pk: str) -> Response:
        """Group unsolved rollouts by cause, with counts and examples. Numbers, ids and quoted strings are replaced.

        The filter `cause:NUMBER` selects the rollouts of a group, `-cause:NUMBER` leaves them out.
        """
        source, limit, offset = SOURCE.read(request), GROUPS.read(request), OFFSET.read(request) or 0
        found = read_failures(self.get_object(), source, limit=limit, offset=offset)
        return Response(FailuresSerializer(found).data)

    @operation("get", responses=GateSerializer, parameters=[BASELINE, MAX_DROP, ALPHA])
    def gate(self, request: Request, pk: str) -> Response:
        """Check whether this collection is significantly worse than a baseline, for example in CI.

        `undecided` means that the collections cannot be compared yet; `reason` says why.
        """
        candidate = self.get_object()
        found = check_regression(
            candidate,
            read_other(request, BASELINE),
            max_drop=MAX_DROP.read(request),
            alpha=ALPHA.read(request),
        )
        return Response(GateSerializer(found).data)

    @operation(
        "get",
        detail=False,
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


def read_other(request: Request, parameter: IntegerParameter) -> Collection:
    """Return the collection that a required query parameter names. Raise QueryProblem."""
    number = parameter.read(request)
    other = Collection.objects.select_related("dataset").filter(pk=number).first()
    if other is None:
        raise bad_query(parameter.name, f"Collection {number} does not exist.")
    return other
