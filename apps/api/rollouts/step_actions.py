"""The trace of an attempt as readable steps, and the steps of two rollouts side by side."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.framework.base_viewsets import TableViewSet, operation
from apps.api.framework.problems import Problem
from apps.api.framework.query_filters import IntegerParameter
from apps.gym.traces.alignment import Step, align, count_common, is_common
from apps.rollouts.models import Rollout
from apps.rollouts.rollout_steps import find_rollouts, read_first_steps, read_steps
from apps.rollouts.steering.trace_deletion import explain_deleted_traces

MAX_NUMBER = 999_999_999
FROM_ZERO = "Give a whole number from 0 on."
ATTEMPT = IntegerParameter("attempt", 0, MAX_NUMBER, description="Attempt. Default: the latest.", message=FROM_ZERO)
AFTER = IntegerParameter("after", 0, MAX_NUMBER, description="Only the steps after this number.", message=FROM_ZERO)
STEPS = IntegerParameter("limit", 1, 1_000, description="Steps per page.", default=100)
OTHER = IntegerParameter("with", 1, required=True, description="The other rollout.")
KINDS = ["prompt", "reasoning", "reply", "call", "result", "environment", "verdict", "error"]


class StepSerializer(serializers.Serializer[Any]):
    """A message, call, result or verdict."""

    number = serializers.IntegerField(help_text="Its number in the attempt, from 1.")
    seq = serializers.IntegerField(help_text="Its event in the trace.")
    kind = serializers.ChoiceField(choices=KINDS)
    name = serializers.CharField(allow_blank=True, help_text="Role of a message, tool of a call or result.")
    error = serializers.CharField(allow_blank=True, help_text="Code of a failed call.")
    text = serializers.CharField(allow_blank=True)


class StepPageSerializer(serializers.Serializer[Any]):
    rollout = serializers.IntegerField()
    attempt = serializers.IntegerField()
    total = serializers.IntegerField(help_text="Steps of the attempt.")
    results = StepSerializer(many=True)
    next_after = serializers.IntegerField(allow_null=True, help_text="Pass it as `after` to get the next page.")


class StepRowSerializer(serializers.Serializer[Any]):
    """Two aligned steps. If they are the same, `other` is null."""

    number = serializers.IntegerField(help_text="From 1.")
    same = serializers.BooleanField()
    one = StepSerializer(allow_null=True)
    other = StepSerializer(allow_null=True)


class SideBySideSerializer(serializers.Serializer[Any]):
    rollouts = serializers.ListField(child=serializers.IntegerField())
    rewards = serializers.ListField(child=serializers.FloatField(allow_null=True))
    diverges_at = serializers.IntegerField(allow_null=True, help_text="First row that differs; null if none does.")
    total = serializers.IntegerField(help_text="Rows of the comparison.")
    left_out = serializers.ListField(
        child=serializers.IntegerField(), help_text="Events of each rollout after the compared steps."
    )
    results = StepRowSerializer(many=True)
    next_after = serializers.IntegerField(allow_null=True, help_text="Pass it as `after` to get the next page.")


class StepActions(TableViewSet):
    """Actions of the rollout viewset that read steps."""

    @operation("get", responses=StepPageSerializer, parameters=[ATTEMPT, AFTER, STEPS])
    def steps(self, request: Request, pk: str) -> Response:
        """Return one attempt as steps: messages, calls, results, errors and the verdict.

        Of a captured attempt, these are the steps of its main path.
        """
        rollout = self.get_object()
        attempt = read_attempt(request, rollout.attempt)
        steps = read_steps(rollout, attempt)
        _check_traces([] if steps else [rollout])
        after, limit = _read_part(request)
        return Response(
            {
                "rollout": rollout.pk,
                "attempt": attempt,
                "total": len(steps),
                "results": [_step(number, steps[number - 1]) for number in _numbers(after, limit, len(steps))],
                "next_after": _next(after, limit, len(steps)),
            }
        )

    @operation(
        "get",
        responses=SideBySideSerializer,
        parameters=[OTHER, AFTER, STEPS],
    )
    def side_by_side(self, request: Request, pk: str) -> Response:
        """Align the steps of this rollout and another rollout of the same task."""
        other = OTHER.read(request)
        rollouts = find_rollouts([self.get_object().pk, other])
        read = [read_first_steps(rollout) for rollout in rollouts]
        _check_traces([rollout for rollout, (steps, _) in zip(rollouts, read, strict=True) if not steps])
        rows = align([steps for steps, _ in read])
        common, places = count_common(rows), [0, 0]
        after, limit = _read_part(request)
        results = []
        for number, row in enumerate(rows, start=1):
            places = [place + (step is not None) for place, step in zip(places, row, strict=True)]
            if after < number <= after + limit:
                one, second = (step and _step(place, step) for place, step in zip(places, row, strict=True))
                same = is_common(row)
                results.append({"number": number, "same": same, "one": one, "other": None if same else second})
        return Response(
            {
                "rollouts": [rollout.pk for rollout in rollouts],
                "rewards": [rollout.reward for rollout in rollouts],
                "diverges_at": common + 1 if common < len(rows) else None,
                "total": len(rows),
                "left_out": [left for _, left in read],
                "results": results,
                "next_after": _next(after, limit, len(rows)),
            }
        )


def _check_traces(rollouts: Sequence[Rollout]) -> None:
    """Raise Problem if the traces of rollouts without steps were deleted: their agents did not do nothing."""
    if problem := explain_deleted_traces((rollout.collection for rollout in rollouts), remedy=""):
        raise Problem(HTTPStatus.GONE, "traces-deleted", problem)


def read_attempt(request: Request, latest: int) -> int:
    """Return the attempt that the query names, or the latest. Raise QueryProblem."""
    given = ATTEMPT.read(request)
    return latest if given is None else given


def _read_part(request: Request) -> tuple[int, int]:
    return AFTER.read(request) or 0, STEPS.read(request)


def _numbers(after: int, limit: int, total: int) -> range:
    return range(after + 1, min(after + limit, total) + 1)


def _next(after: int, limit: int, total: int) -> int | None:
    return after + limit if after + limit < total else None


def _step(number: int, step: Step) -> dict[str, Any]:
    return {"number": number, **step._asdict()}
