"""The tasks behind the difference of two collections."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.collections.breakdown_actions import OTHER, read_other
from apps.api.framework.base_viewsets import TableViewSet, operation
from apps.api.framework.problems import bad_query
from apps.api.framework.query_filters import ChoiceParameter, IntegerParameter
from apps.api.framework.record_serializers import record_serializer
from apps.rollouts.metrics.collection_comparison import Change, check_contrast
from apps.rollouts.metrics.task_changes import WHICH, Cursor, Which, find_extreme_rollouts, list_changes

DEFAULT_WHICH: Which = "regressed"
WHICH_TASKS = ChoiceParameter(
    "which",
    WHICH,
    default=DEFAULT_WHICH,
    description="`lost`: only this collection solved the task. `gained`: only the other one did.",
    message="Unknown list {}. Choose one of {}.",
)
AFTER = OpenApiParameter("after", OpenApiTypes.STR, description="`next_after` of the previous page.")
TASKS = IntegerParameter("limit", 1, 1_000, description="Tasks per page.", default=50)


@record_serializer(
    Change,
    task="The task in this collection.",
    other_task="The same task in the dataset version of the other collection.",
    mean_reward="Of this collection.",
    difference="Other collection minus this one.",
)
class TaskChangeSerializer(serializers.Serializer[Any]):
    rollout = serializers.IntegerField(
        allow_null=True, help_text="Representative rollout of this collection, to compare with `other_rollout`."
    )
    other_rollout = serializers.IntegerField(allow_null=True)


class TaskChangePageSerializer(serializers.Serializer[Any]):
    results = TaskChangeSerializer(many=True)
    next_after = serializers.CharField(allow_null=True, help_text="Pass it as `after` to get the next page.")


class TaskChangeActions(TableViewSet):
    """Actions of the collection viewset that list changed tasks."""

    @operation("get", responses=TaskChangePageSerializer, parameters=[OTHER, WHICH_TASKS, AFTER, TASKS])
    def changes(self, request: Request, pk: str) -> Response:
        """List the tasks that another collection of the same dataset solves better or worse.

        The largest differences come first. Two rollouts represent each task: the best of the better collection, and the
        worst of the other.
        """
        one, other = self.get_object(), read_other(request, OTHER)
        check_contrast(one, other)
        limit = TASKS.read(request)
        found = list_changes(one, other, WHICH_TASKS.read(request), after=_read_after(request), limit=limit)
        pairs = [pair or (None, None) for pair in find_extreme_rollouts(one, other, found)]
        rows = [
            {**asdict(change), "rollout": mine, "other_rollout": theirs}
            for change, (mine, theirs) in zip(found, pairs, strict=True)
        ]
        following = str(Cursor(found[-1].difference, found[-1].task)) if len(found) == limit else None
        return Response(TaskChangePageSerializer({"results": rows, "next_after": following}).data)


def _read_after(request: Request) -> Cursor | None:
    text = request.query_params.get("after", "")
    after = Cursor.parse(text)
    if text and after is None:
        raise bad_query("after", "Invalid position. Give `next_after` of the previous page.")
    return after
