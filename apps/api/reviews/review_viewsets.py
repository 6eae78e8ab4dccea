"""Reviews: what somebody has open, submits, or said; scores outside of queues."""

from http import HTTPStatus
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission, caller_may
from apps.api.accounts.audit_viewsets import CsvRenderer
from apps.api.collections.stream_viewsets import NdjsonRenderer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.file_answers import one_by_one, stream_rows
from apps.api.framework.problems import QueryProblem
from apps.api.framework.query_filters import FlagFilter, IdFilter, plain, task_number
from apps.api.reviews.review_serializers import (
    DraftSerializer,
    ReviewSerializer,
    ScoreSerializer,
    SkipSerializer,
    SubmissionSerializer,
    SubmittedSerializer,
)
from apps.gym.pairs.verdicts import CHOICES
from apps.reviews.models import Review
from apps.reviews.queues.item_leases import renew_lease, skip_item
from apps.reviews.queues.queue_filters import KINDS, narrow_reviews
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.review_files import FORMATS, record_export, tag_reviews
from apps.reviews.reviews.submission import score_rollout, submit_and_claim, submit_review

_HIDDEN = "Annotators find only what they scored outside of queues by it."


class ReviewFilter(django_filters.FilterSet):
    """What these mean is said in apps.reviews.queues.queue_filters, for pages and commands as well."""

    queue = IdFilter("queue")
    item = IdFilter("item")
    collection = IdFilter("rollout__collection", label=f"About a rollout of it, alone or among others. {_HIDDEN}")
    rollout = IdFilter("rollout", label=f"About it, alone or among others. {_HIDDEN}")
    task = IdFilter("item__task", label=_HIDDEN)
    task_number = task_number("item__task__index", also=_HIDDEN)
    text = django_filters.CharFilter(field_name="item__task__prompt_excerpt", label=f"Words of the task. {_HIDDEN}")
    reviewer = django_filters.CharFilter(field_name="reviewer__username")
    kind = django_filters.ChoiceFilter(choices=list(KINDS.items()), label="Of the queue; `score` outside of queues.")
    status = django_filters.ChoiceFilter(choices=Review.Status.choices)
    choice = django_filters.ChoiceFilter(choices=list(CHOICES.items()), label="Of a pair, as it was shown.")
    verdict = django_filters.ChoiceFilter(
        choices=list(CHOICES.items()),
        label=f"Of a pair, A being the first of the item's rollouts, whichever side it was shown on. {_HIDDEN}",
    )
    confidence = django_filters.NumberFilter(field_name="confidence", min_value=1, max_value=3, decimal_places=0)
    could_see_results = FlagFilter("could_see_results", label="By people whose role showed them results.")
    is_adjudication = FlagFilter("is_adjudication")
    is_repeat = FlagFilter("repeat_of", label=f"Hidden repeats. {_HIDDEN}")

    class Meta:
        model = Review
        fields: list[str] = []

    def filter_queryset(self, queryset: QuerySet[Review]) -> QuerySet[Review]:
        reads_all = caller_may(self.request.user, self.request.auth, Permission.READ)
        return narrow_reviews(queryset, plain(self.form.cleaned_data), reads_all=reads_all)


class ReviewViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Review.objects.select_related("reviewer", "rubric", "queue", "item__task")
    serializer_class = ReviewSerializer
    filterset_class = ReviewFilter
    lookup_value_regex = "[0-9]+"
    problems = {"create": {409}, "renew": {409}, "submit": {409}, "skip": {409}}
    permissions = {
        "list": Permission.READ_QUEUES,
        "retrieve": Permission.READ_QUEUES,
        "create": Permission.COMMENT,
        "renew": Permission.REVIEW,
        "submit": Permission.REVIEW,
        "skip": Permission.REVIEW,
        "export": Permission.LEAD,
    }
    query_parameters = {"export": frozenset({"format", *ReviewFilter.base_filters})}

    def get_queryset(self) -> QuerySet[Review]:
        """Everybody's; one's own for annotators."""
        reviews: QuerySet[Review] = super().get_queryset()
        if getattr(self, "swagger_fake_view", False) or self.may(Permission.READ):
            return reviews
        return reviews.filter(reviewer=self.person)

    @extend_schema(
        filters=True,
        responses={(200, "application/x-ndjson"): OpenApiTypes.BINARY, (200, "text/csv"): OpenApiTypes.BINARY},
        parameters=[OpenApiParameter("format", str, enum=list(FORMATS), default="ndjson")],
    )
    @action(detail=False, pagination_class=None, renderer_classes=[JSONRenderer, NdjsonRenderer, CsvRenderer])
    def export(self, request: Request) -> HttpResponseBase:
        """All reviews that the filters let through, the oldest first, streamed as NDJSON or CSV: what is open or was
        skipped as well, unless `status` says otherwise. Takes If-None-Match and no Range."""
        name = request.query_params.get("format", "ndjson")
        if name not in FORMATS:
            message = f"Give {' or '.join(FORMATS)}."
            raise QueryProblem([{"pointer": "?format", "code": "invalid", "message": message}])
        content_type, write = FORMATS[name]
        etag, reviews = tag_reviews(self.filter_queryset(self.get_queryset()), format=name)
        rows = one_by_one(write(reviews))
        response = stream_rows(request, rows, etag=etag, filename=f"reviews.{name}", content_type=content_type)
        if response.streaming:
            record_export(user=self.person, reviews=reviews, format=name, filters=request.query_params.dict())
        return response

    @extend_schema(request=ScoreSerializer, responses={201: ReviewSerializer})
    def create(self, request: Request) -> Response:
        """Score a rollout, or one of its steps, by a rubric outside of any queue. Your last scores count."""
        body = ScoreSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        review = score_rollout(**body.validated_data, reviewer=self.person)
        return self._answer(review, HTTPStatus.CREATED)

    @extend_schema(request=DraftSerializer, responses=ReviewSerializer)
    @action(detail=True, methods=["post"])
    def renew(self, request: Request, pk: str) -> Response:
        """Keep the item for as long again, and what is written so far. `shown` is null here: GET tells it."""
        body = DraftSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        review = renew_lease(review=self.get_object(), user=self.person, draft=body.validated_data.get("draft"))
        return self._answer(review)

    @extend_schema(request=SubmissionSerializer, responses=SubmittedSerializer)
    @action(detail=True, methods=["post"])
    def submit(self, request: Request, pk: str) -> Response:
        """Say what you think. The same `token` again changes nothing, so that a lost answer can be asked for again."""
        body = SubmissionSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        said = dict(body.validated_data)
        claims, token = said.pop("claim"), said.pop("token")
        given: dict[str, Any] = {"user": self.person, "token": token, "answer": Answer(**said)}
        following: Review | None = None
        if claims:
            review, following = submit_and_claim(review=self.get_object(), **given)
        else:
            review = submit_review(review=self.get_object(), **given)
        context = {**self.get_serializer_context(), "next": following.pk if following else None}
        return Response(SubmittedSerializer(review, context=context).data)

    @extend_schema(request=SkipSerializer, responses=ReviewSerializer)
    @action(detail=True, methods=["post"])
    def skip(self, request: Request, pk: str) -> Response:
        """Leave the item to others."""
        body = SkipSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        return self._answer(skip_item(review=self.get_object(), user=self.person, **body.validated_data))

    def _answer(self, review: Review, status: int = HTTPStatus.OK) -> Response:
        return Response(ReviewSerializer(review, context=self.get_serializer_context()).data, status=status)
