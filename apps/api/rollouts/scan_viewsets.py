"""Scans: a judge model answers one question for many rollouts."""

from http import HTTPStatus
from typing import Any

import django_filters
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, operation, row_action
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import IdFilter, filter_set
from apps.api.framework.record_serializers import make_serializer
from apps.api.framework.spec_serializers import spec_serializer
from apps.gym.judging.transcript_questions import Citation
from apps.policies.models import PolicyModel
from apps.reviews.agreement.scan_accuracy import Accuracy, read_accuracy
from apps.rollouts.models import Scan, ScanAnswer
from apps.rollouts.scans.scan_controls import cancel_scan, create_scan, resume_scan, start_scan
from apps.rollouts.scans.scan_estimates import ScanEstimate, estimate_scan
from apps.rollouts.scans.scan_spec import MAX_BUDGET, ScanSpec


class ScanSerializer(serializers.ModelSerializer[Scan]):
    judge_model: serializers.SlugRelatedField[PolicyModel] = serializers.SlugRelatedField(
        slug_field="slug", read_only=True
    )
    labels = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Scan
        fields = [
            "id",
            "name",
            "question",
            "judge_model",
            "kind",
            "labels",
            "filter",
            "budget",
            "max_characters",
            "structured_output",
            "state",
            "total",
            "answered",
            "failed",
            "estimated_cost",
            "cost",
            "message",
            "created_at",
            "finished_at",
        ]


@spec_serializer(ScanSpec)
class ScanSpecSerializer(DeclaredFields, serializers.Serializer[Any]):
    pass


ScanEstimateSerializer = make_serializer(
    "ScanEstimate",
    ScanEstimate,
    rollouts="Finished rollouts that match the filter.",
    sampled="Rollouts whose transcripts were measured.",
    cost="USD at current prices; 0 if the judge model has no prices.",
)


class ResumeSerializer(DeclaredFields, serializers.Serializer[Any]):
    budget = serializers.FloatField(
        required=False, min_value=0.01, max_value=MAX_BUDGET, help_text="New budget in USD. Left out: the old one."
    )


CitationSerializer = make_serializer(
    "Citation", Citation, event="Number of a trace event.", quote="A part of the text of the event."
)


class ScanAnswerSerializer(serializers.ModelSerializer[ScanAnswer]):
    citations = CitationSerializer(many=True, read_only=True)

    class Meta:
        model = ScanAnswer
        fields = ["id", "rollout", "attempt", "state", "answer", "number", "reason", "citations", "error", "cost"]


AccuracySerializer = make_serializer(
    "Accuracy", Accuracy, criteria="Criteria of rubrics with the answers of the scan; empty without blind reviews."
)


class ScanAnswerFilter(django_filters.FilterSet):
    rollout = IdFilter("rollout")
    state = django_filters.ChoiceFilter(choices=ScanAnswer.State.choices)
    answer = django_filters.CharFilter(field_name="answer", max_length=100)


class ScanViewSet(RowViewSet):
    noun = "scan"
    queryset = Scan.objects.select_related("judge_model")
    serializer_class = ScanSerializer
    filterset_class = filter_set(
        judge_model=django_filters.CharFilter(field_name="judge_model__slug"),
        state=django_filters.ChoiceFilter(choices=Scan.State.choices),
    )
    page_actions = frozenset({"list", "answers"})
    permissions = {
        **dict.fromkeys(["list", "retrieve", "answers", "accuracy"], Permission.READ),
        **dict.fromkeys(["estimate", "create", "start", "resume", "cancel"], Permission.COLLECT),
    }

    @operation(detail=False, request=ScanSpecSerializer, responses=ScanEstimateSerializer)
    def estimate(self, request: Request) -> Response:
        """Count the rollouts of a scan and estimate its cost from a sample, without creating it."""
        return Response(ScanEstimateSerializer(estimate_scan(ScanSpec(**self.read_body(ScanSpecSerializer)))).data)

    @extend_schema(request=ScanSpecSerializer, responses={201: ScanSerializer})
    def create(self, request: Request) -> Response:
        """Create a scan with its estimate. It calls no judge and costs nothing until it is started."""
        scan = create_scan(ScanSpec(**self.read_body(ScanSpecSerializer)), user=self.user)
        return Response(ScanSerializer(scan).data, status=HTTPStatus.CREATED)

    start = row_action("start", start_scan, "Fix the rollouts of a scan and start asking the judge. A worker does it.")

    @operation(request=ResumeSerializer, responses=ScanSerializer)
    def resume(self, request: Request, pk: str) -> Response:
        """Continue a paused scan. If its budget is used up, give a higher one."""
        budget = self.read_body(ResumeSerializer).get("budget")
        return Response(ScanSerializer(resume_scan(scan=self.get_object(), budget=budget, user=self.user)).data)

    cancel = row_action("cancel", cancel_scan, "End a scan that is not completed. Its answers are kept.")

    @operation("get", filterset_class=ScanAnswerFilter, responses=ScanAnswerSerializer(many=True))
    def answers(self, request: Request, pk: str) -> Response:
        """List the answers with reasons and citations, also of rollouts that are still pending or failed."""
        # Not `get_object`: it would apply the filters of answers to the scan.
        rows = get_object_or_404(Scan, pk=pk).answers.all()
        return self.answer_page(ScanAnswerSerializer, self.filter_queryset(rows))

    @operation("get", responses=AccuracySerializer)
    def accuracy(self, request: Request, pk: str) -> Response:
        """Return precision and recall with 95 % intervals, against reviews of the rollouts in blind queues."""
        return Response(AccuracySerializer(read_accuracy(self.get_object())).data)
