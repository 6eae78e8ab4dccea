"""Reviews: what somebody has open, submits, or said; scores outside of queues."""

from http import HTTPStatus
from typing import Any

import django_filters
import orjson
from django.db.models import QuerySet
from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.permissions import Permission, caller_may
from apps.api.audit_entries import CsvRenderer
from apps.api.declared import DeclaredFields
from apps.api.downloads import one_by_one, stream_rows
from apps.api.filters import FlagFilter, IdFilter, plain, task_number
from apps.api.problems import QueryProblem
from apps.api.streams import NdjsonRenderer
from apps.api.viewsets import TableViewSet
from apps.gym.verdicts import CHOICES, REASONS
from apps.reviews.answers import Answer
from apps.reviews.drafting import find_draft_problem
from apps.reviews.handing_over import FORMATS, record_export, tag_reviews
from apps.reviews.leasing import MAX_DRAFT, renew_lease, skip_item
from apps.reviews.models import Review, Rubric
from apps.reviews.narrowing import KINDS, narrow_reviews
from apps.reviews.reviewing import score_rollout, submit_and_claim, submit_review
from apps.reviews.withholding import read_shown, reveal, tell_shown
from apps.rollouts.models import Rollout

MAX_TOKEN = 64
_LED = "Finds only what was scored outside of queues for who does not lead them."


class AnswerSerializer(DeclaredFields, serializers.Serializer[Any]):
    token = serializers.CharField(
        max_length=MAX_TOKEN, help_text="Your own, a new one for each submission: the same one twice counts once."
    )
    choice = serializers.ChoiceField(choices=list(CHOICES), required=False, allow_blank=True, help_text="Of a pair.")
    ranks = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=6),
        required=False,
        max_length=6,
        help_text="Of a ranking, in the order shown: 1 is best, equal ranks are ties.",
    )
    scores = serializers.DictField(required=False, help_text="By the key of the rubric's criterion.")
    reasons = serializers.ListField(
        child=serializers.ChoiceField(choices=list(REASONS)), required=False, max_length=len(REASONS)
    )
    note = serializers.CharField(required=False, allow_blank=True, max_length=10_000)
    confidence = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=3, help_text="1 unsure, 2 rather sure, 3 sure."
    )


class AdjudicationSerializer(AnswerSerializer):
    saw_votes = serializers.BooleanField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Whether you had seen what people said, rewards and models before you said this.",
    )


class SubmissionSerializer(AnswerSerializer):
    claim = serializers.BooleanField(
        default=False, help_text="Take the queue's next item with it: `next` of the answer is its review."
    )


def read_answer(data: Any) -> tuple[str, Answer]:
    """The token, and what is said."""
    body = AnswerSerializer(data=data)
    body.is_valid(raise_exception=True)
    said = dict(body.validated_data)
    return said.pop("token"), Answer(**said)


class DraftSerializer(DeclaredFields, serializers.Serializer[Any]):
    draft = serializers.DictField(
        required=False, help_text="What is written so far, in the fields of an answer; left out: as it was."
    )

    def validate_draft(self, draft: dict[str, Any]) -> dict[str, Any]:
        if len(orjson.dumps(draft)) > MAX_DRAFT:
            raise serializers.ValidationError(f"A draft has at most {MAX_DRAFT:,} bytes.")
        if problem := find_draft_problem(draft):
            raise serializers.ValidationError(problem)
        return draft


class SkipSerializer(DeclaredFields, serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=500)


class UndoSerializer(DeclaredFields, serializers.Serializer[Any]):
    review = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=2**63 - 1,
        help_text="The one to take back, so that asking twice takes back one: refused where it is not your last; left "
        "out: whichever is your last.",
    )


class ScoreSerializer(DeclaredFields, serializers.Serializer[Any]):
    rollout = serializers.PrimaryKeyRelatedField(queryset=Rollout.objects.filter(collection__is_being_deleted=False))
    seq = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=2**31 - 1)
    rubric = serializers.SlugRelatedField[Any](slug_field="slug", queryset=Rubric.objects.all())
    scores = serializers.DictField()
    note = serializers.CharField(required=False, allow_blank=True, max_length=10_000)
    token = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TOKEN)


class ShownSideSerializer(serializers.Serializer[Any]):
    label = serializers.CharField(help_text="A is the first side.")  # type: ignore[assignment]
    events = serializers.ListField(child=serializers.DictField())
    left_out = serializers.IntegerField(help_text="Events after these.")
    stop_reason = serializers.CharField()
    reward = serializers.FloatField(allow_null=True, help_text="Null where it is kept from you.")
    model = serializers.CharField(allow_null=True)


class ShownSerializer(serializers.Serializer[Any]):
    prompt = serializers.ListField(child=serializers.DictField())
    expected = serializers.DictField(allow_null=True, help_text="Null where it is kept from you.")
    sides = ShownSideSerializer(many=True)


class RevealedSerializer(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]
    rollout = serializers.IntegerField()
    reward = serializers.FloatField(allow_null=True)
    model = serializers.CharField()


class ReviewSerializer(serializers.ModelSerializer[Review]):
    """To its reviewer a review tells which rollouts it is about once it is submitted and can be undone no more."""

    reviewer = serializers.SlugRelatedField[Any](slug_field="username", read_only=True)
    rubric = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    draft = serializers.DictField(read_only=True)
    scores = serializers.DictField(read_only=True)
    ranks = serializers.ListField(child=serializers.IntegerField(), read_only=True)
    reasons = serializers.ListField(child=serializers.CharField(), read_only=True)
    shown = serializers.SerializerMethodField(help_text="While it is open: what there is to judge.")
    revealed = serializers.SerializerMethodField(help_text="After it, in a queue that trains.")
    rollouts = serializers.SerializerMethodField(help_text="In the order shown, for who leads queues.")

    class Meta:
        model = Review
        fields = [
            "id",
            "queue",
            "item",
            "reviewer",
            "status",
            "rubric",
            "seq",
            "leased_until",
            "draft",
            "choice",
            "ranks",
            "scores",
            "reasons",
            "note",
            "confidence",
            "skip_reason",
            "started_at",
            "submitted_at",
            "skipped_at",
            "seconds",
            "is_adjudication",
            "saw_votes",
            "shown",
            "revealed",
            "rollouts",
        ]

    @extend_schema_field(ShownSerializer(allow_null=True))
    def get_shown(self, review: Review) -> dict[str, Any] | None:
        view = self.context.get("view")
        # Not with each draft that is kept: whoever keeps one has the item, which may be a megabyte.
        is_one = getattr(view, "action", "") in {"retrieve", "claim", "undo"}
        if review.status not in {Review.Status.OPEN, Review.Status.LAPSED} or review.queue is None or not is_one:
            return None
        return tell_shown(review, read_shown(review))

    @extend_schema_field(RevealedSerializer(many=True))
    def get_revealed(self, review: Review) -> list[dict[str, Any]]:
        return reveal(review)

    @extend_schema_field({"type": "array", "items": {"type": "integer"}, "nullable": True})
    def get_rollouts(self, review: Review) -> list[int] | None:
        view = self.context.get("view")
        if review.queue_id is None:
            return [review.rollout_id] if review.rollout_id else []
        return list(review.arrangement) if view is not None and view.may(Permission.LEAD) else None


class SubmittedSerializer(ReviewSerializer):
    next = serializers.SerializerMethodField(help_text="The review of the next item, where `claim` asked for one.")

    class Meta(ReviewSerializer.Meta):
        fields = [*ReviewSerializer.Meta.fields, "next"]

    @extend_schema_field({"type": "integer", "nullable": True})
    def get_next(self, review: Review) -> int | None:
        found: int | None = self.context.get("next")
        return found


class ReviewFilter(django_filters.FilterSet):
    """What these mean is said in apps.reviews.narrowing, for pages and commands as well."""

    queue = IdFilter("queue")
    item = IdFilter("item")
    collection = IdFilter("rollout__collection", label=f"About a rollout of it, alone or among others. {_LED}")
    rollout = IdFilter("rollout", label=f"About it, alone or among others. {_LED}")
    task = IdFilter("item__task", label=_LED)
    task_number = task_number("item__task__index", also=_LED)
    text = django_filters.CharFilter(field_name="item__task__prompt_excerpt", label=f"Words of the task. {_LED}")
    reviewer = django_filters.CharFilter(field_name="reviewer__username")
    kind = django_filters.ChoiceFilter(choices=list(KINDS.items()), label="Of the queue; `score` outside of queues.")
    status = django_filters.ChoiceFilter(choices=Review.Status.choices)
    choice = django_filters.ChoiceFilter(choices=list(CHOICES.items()), label="Of a pair, as it was shown.")
    verdict = django_filters.ChoiceFilter(
        choices=list(CHOICES.items()),
        label=f"Of a pair, A being the first of the item's rollouts, whichever side it was shown on. {_LED}",
    )
    confidence = django_filters.NumberFilter(field_name="confidence", min_value=1, max_value=3, decimal_places=0)
    is_adjudication = FlagFilter("is_adjudication")
    is_repeat = FlagFilter("repeat_of", label=f"Hidden repeats. {_LED}")

    class Meta:
        model = Review
        fields: list[str] = []

    def filter_queryset(self, queryset: QuerySet[Review]) -> QuerySet[Review]:
        leads = caller_may(self.request.user, self.request.auth, Permission.LEAD)
        return narrow_reviews(queryset, plain(self.form.cleaned_data), leads=leads)


class ReviewViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Review.objects.select_related("reviewer", "rubric", "queue", "item__task")
    serializer_class = ReviewSerializer
    filterset_class = ReviewFilter
    lookup_value_regex = "[0-9]+"
    problems = {"create": {409}, "renew": {409}, "submit": {409}, "skip": {409}}
    permissions = {
        "list": Permission.REVIEW,
        "retrieve": Permission.REVIEW,
        "create": Permission.REVIEW,
        "renew": Permission.REVIEW,
        "submit": Permission.REVIEW,
        "skip": Permission.REVIEW,
        "export": Permission.LEAD,
    }
    query_parameters = {"export": frozenset({"format", *ReviewFilter.base_filters})}

    def get_queryset(self) -> QuerySet[Review]:
        """One's own; everybody's for who leads queues."""
        reviews: QuerySet[Review] = super().get_queryset()
        if getattr(self, "swagger_fake_view", False) or self.may(Permission.LEAD):
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
