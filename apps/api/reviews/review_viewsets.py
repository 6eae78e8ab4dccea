"""Reviews: open, submitted and others; scores outside queues."""

from http import HTTPStatus
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.http import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.keyset_reading import one_by_one
from apps.accounts.permissions import Permission, caller_may
from apps.api.framework.base_viewsets import RowViewSet, operation
from apps.api.framework.file_answers import TABLE_FILE, TABLE_RENDERERS, stream_rows
from apps.api.framework.query_filters import FlagFilter, IdFilter, read_format, task_number_filter, with_integers
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
from apps.reviews.queues.queue_filters import KINDS, filter_reviews
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.review_files import FORMATS, record_export, tag_reviews
from apps.reviews.reviews.submission import score_rollout, submit_and_claim, submit_review

_HIDDEN = "Annotators find only their scores outside queues."


class ReviewFilter(django_filters.FilterSet):
    """The filters of apps.reviews.queues.queue_filters, shared with pages and commands."""

    queue = IdFilter("queue")
    item = IdFilter("item")
    collection = IdFilter("rollout__collection", label=f"Reviews of its rollouts. {_HIDDEN}")
    rollout = IdFilter("rollout", label=f"Reviews of this rollout. {_HIDDEN}")
    task = IdFilter("item__task", label=_HIDDEN)
    task_number = task_number_filter("item__task__index", note=_HIDDEN)
    text = django_filters.CharFilter(field_name="item__task__prompt_excerpt", label=f"Words in the task. {_HIDDEN}")
    reviewer = django_filters.CharFilter(field_name="reviewer__username")
    kind = django_filters.ChoiceFilter(choices=list(KINDS.items()), label="Kind of the queue; `score` outside queues.")
    status = django_filters.ChoiceFilter(choices=Review.Status.choices)
    choice = django_filters.ChoiceFilter(choices=list(CHOICES.items()), label="Verdict on a pair, with sides as shown.")
    verdict = django_filters.ChoiceFilter(
        choices=list(CHOICES.items()),
        label=f"Verdict on a pair; A is the first rollout of the item. {_HIDDEN}",
    )
    confidence = django_filters.NumberFilter(field_name="confidence", min_value=1, max_value=3, decimal_places=0)
    could_see_results = FlagFilter("could_see_results", label="Reviews by users who could see results.")
    is_adjudication = FlagFilter("is_adjudication")
    is_repeat = FlagFilter("repeat_of", label=f"Hidden repeats. {_HIDDEN}")

    def filter_queryset(self, queryset: QuerySet[Review]) -> QuerySet[Review]:
        reads_all = caller_may(self.request.user, self.request.auth, Permission.READ)
        return filter_reviews(queryset, with_integers(self.form.cleaned_data), reads_all=reads_all)


class ReviewViewSet(RowViewSet):
    queryset = Review.objects.select_related("reviewer", "rubric", "queue", "item__task")
    serializer_class = ReviewSerializer
    filterset_class = ReviewFilter
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ_QUEUES),
        "create": Permission.COMMENT,
        **dict.fromkeys(["renew", "submit", "skip"], Permission.REVIEW),
        "export": Permission.LEAD,
    }

    def get_queryset(self) -> QuerySet[Review]:
        """Return all reviews; for annotators, their own."""
        reviews: QuerySet[Review] = super().get_queryset()
        if getattr(self, "swagger_fake_view", False) or self.may(Permission.READ):
            return reviews
        return reviews.filter(reviewer=self.user)

    @operation("get", detail=False, pagination_class=None, renderer_classes=TABLE_RENDERERS, filters=True, **TABLE_FILE)
    def export(self, request: Request) -> HttpResponseBase:
        """Export all reviews that match the filters, oldest first, as NDJSON or CSV.

        Includes open and skipped ones unless `status` is set. Supports If-None-Match, not Range.
        """
        name, content_type, write = read_format(request, FORMATS)
        etag, reviews = tag_reviews(self.filter_queryset(self.get_queryset()), format=name)
        rows = one_by_one(write(reviews))
        response = stream_rows(request, rows, etag=etag, filename=f"reviews.{name}", content_type=content_type)
        if response.streaming:
            record_export(user=self.user, reviews=reviews, format=name, filters=request.query_params.dict())
        return response

    @extend_schema(request=ScoreSerializer, responses={201: ReviewSerializer})
    def create(self, request: Request) -> Response:
        """Score a rollout, or one of its steps, by a rubric outside of any queue. Your last scores count."""
        review = score_rollout(**self.read_body(ScoreSerializer), reviewer=self.user)
        return self._answer(review, HTTPStatus.CREATED)

    @operation(request=DraftSerializer, responses=ReviewSerializer)
    def renew(self, request: Request, pk: str) -> Response:
        """Extend the reservation and save the draft."""
        body = self.read_body(DraftSerializer)
        return self._answer(renew_lease(review=self.get_object(), user=self.user, draft=body.get("draft")))

    @operation(request=SubmissionSerializer, responses=SubmittedSerializer)
    def submit(self, request: Request, pk: str) -> Response:
        """Submit a review. Idempotent by `token`, so a request whose response was lost can be repeated."""
        said = self.read_body(SubmissionSerializer)
        claims, token = said.pop("claim"), said.pop("token")
        given: dict[str, Any] = {"user": self.user, "token": token, "answer": Answer(**said)}
        following: Review | None = None
        if claims:
            review, following = submit_and_claim(review=self.get_object(), **given)
        else:
            review = submit_review(review=self.get_object(), **given)
        context = {**self.get_serializer_context(), "next": following.pk if following else None}
        return Response(SubmittedSerializer(review, context=context).data)

    @operation(request=SkipSerializer, responses=ReviewSerializer)
    def skip(self, request: Request, pk: str) -> Response:
        """Skip the item and leave it to other reviewers."""
        return self._answer(skip_item(review=self.get_object(), user=self.user, **self.read_body(SkipSerializer)))

    def _answer(self, review: Review, status: int = HTTPStatus.OK) -> Response:
        return Response(ReviewSerializer(review, context=self.get_serializer_context()).data, status=status)
