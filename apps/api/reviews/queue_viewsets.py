"""Queues of what people judge: made, led, worked through, and settled."""

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

from apps.accounts.permissions import Permission
from apps.api.accounts.audit_viewsets import CsvRenderer
from apps.api.collections.stream_viewsets import NdjsonRenderer
from apps.api.framework.base_viewsets import TableViewSet
from apps.api.framework.file_answers import one_by_one, stream_rows
from apps.api.framework.problems import QueryProblem
from apps.api.framework.query_filters import FlagFilter, IdFilter, plain, task_number
from apps.api.reviews.queue_serializers import (
    QueueChangeSerializer,
    QueueFiguresSerializer,
    QueueItemSerializer,
    QueuePlanSerializer,
    QueueSerializer,
    WaitingSerializer,
)
from apps.api.reviews.review_serializers import AdjudicationSerializer, ReviewSerializer, UndoSerializer
from apps.gym.pairs.verdicts import CHOICES
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.agreement.queue_figures import read_figures
from apps.reviews.models import Queue, QueueItem
from apps.reviews.queues.item_leases import claim_item
from apps.reviews.queues.item_states import State
from apps.reviews.queues.queue_changes import change_queue, close_queue, create_queue, delete_queue, open_queue
from apps.reviews.queues.queue_filters import narrow_items
from apps.reviews.queues.queue_items import (
    Item,
    QueueRefused,
    fill_from_collection,
    fill_from_filter,
    fill_from_rollouts,
    fill_from_sets,
)
from apps.reviews.queues.waiting_items import read_waiting
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.review_files import FORMATS, record_export
from apps.reviews.reviews.undo import undo_review

SEEING = {None: None, "true": True, "false": False}


class QueueFilter(django_filters.FilterSet):
    kind = django_filters.ChoiceFilter(choices=Queue.Kind.choices)
    is_open = FlagFilter("closed_at", lookup_expr="isnull")

    class Meta:
        model = Queue
        fields: list[str] = []


class QueueItemFilter(django_filters.FilterSet):
    """What these mean is said in apps.reviews.queues.queue_filters, for pages and commands as well."""

    queue = IdFilter("queue")
    state = django_filters.ChoiceFilter(
        choices=State.choices, label="An item may be in several: somebody has it, and it waits for one more."
    )
    disputed = FlagFilter("doubt", label="Those that reviewers differ on and nobody has settled.")
    reviewer = django_filters.CharFilter(label="Those of which this person said something, skipped or has something.")
    verdict = django_filters.ChoiceFilter(
        choices=list(CHOICES.items()),
        label="Those of which somebody said this, A being the first of `rollouts`; with `reviewer`, this person.",
    )
    skipped = FlagFilter("reviews", label="Those that somebody skipped; with `reviewer`, this person.")
    task = IdFilter("task")
    task_number = task_number("task__index")
    text = django_filters.CharFilter(label="Words of the task.")
    is_repeated = FlagFilter("is_repeated", label="Those that come to their reviewers twice.")

    class Meta:
        model = QueueItem
        fields: list[str] = []

    def filter_queryset(self, queryset: QuerySet[QueueItem]) -> QuerySet[QueueItem]:
        return narrow_items(queryset, plain(self.form.cleaned_data))


class QueueViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = Queue.objects.select_related("rubric")
    serializer_class = QueueSerializer
    filterset_class = QueueFilter
    lookup_value_regex = "[0-9]+"
    problems = {"claim": {409}, "undo": {409}, "destroy": {400}}
    query_parameters = {"export": frozenset({"format"}), "figures": frozenset({"could_see_results"})}
    permissions = {
        "list": Permission.READ_QUEUES,
        "retrieve": Permission.READ_QUEUES,
        "waiting": Permission.REVIEW,
        "claim": Permission.REVIEW,
        "undo": Permission.REVIEW,
        "create": Permission.LEAD,
        "partial_update": Permission.LEAD,
        "destroy": Permission.LEAD,
        "close": Permission.LEAD,
        "open": Permission.LEAD,
        "figures": Permission.READ,
        "export": Permission.LEAD,
    }

    def get_queryset(self) -> QuerySet[Queue]:
        """All; for annotators the open ones that they may review."""
        queues: QuerySet[Queue] = super().get_queryset()
        if getattr(self, "swagger_fake_view", False) or self.may(Permission.READ):
            return queues
        mine = Queue.objects.open().for_reviewer(self.person.pk).values("pk")
        return queues.filter(pk__in=mine)

    @extend_schema(request=QueuePlanSerializer, responses={201: QueueSerializer})
    def create(self, request: Request) -> Response:
        """Make a queue of a collection, of rollouts, of what passes a filter, or of items that are named one by one.
        What is not said to be shown stays hidden from reviewers."""
        body = QueuePlanSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        wanted = dict(body.validated_data)
        reviewers = wanted.pop("reviewers", [])
        sources = {name: wanted.pop(name) for name in ("collection", "rollouts", "filter", "items") if name in wanted}
        per_task, size = wanted.pop("per_task"), wanted.pop("size")
        queue = Queue(**wanted)
        items = _fill(queue, sources, per_task=per_task, size=size)
        made = create_queue(queue=queue, items=items, reviewers=reviewers, user=self.person)
        return self._answer(made, HTTPStatus.CREATED)

    @extend_schema(responses=WaitingSerializer(many=True), filters=False)
    @action(detail=False, pagination_class=None, filterset_class=None)
    def waiting(self, request: Request) -> Response:
        """The queues in which there is something for you to review: what you hold first, then what names you."""
        return Response(WaitingSerializer(read_waiting(self.person), many=True).data)

    @extend_schema(request=QueueChangeSerializer, responses=QueueSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change its name, instructions, overlap, order, lease time or reviewers; the rest stays as it was made."""
        queue = self.get_object()
        context = {"shown": self._answer(queue).data, "moving": {"is_open", "item_count"}}
        body = QueueChangeSerializer(data=request.data, partial=True, context=context)
        body.is_valid(raise_exception=True)
        changes = dict(body.validated_data)
        reviewers = changes.pop("reviewers", None)
        queue = change_queue(queue=queue, changes=changes, reviewers=reviewers, user=self.person)
        return self._answer(queue)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Only while nobody has submitted a review in it: close it then."""
        delete_queue(queue=self.get_object(), user=self.person)
        return Response(status=HTTPStatus.NO_CONTENT)

    @extend_schema(request=None, responses=QueueSerializer)
    @action(detail=True, methods=["post"])
    def close(self, request: Request, pk: str) -> Response:
        """Give out no more items."""
        return self._answer(close_queue(queue=self.get_object(), user=self.person))

    @extend_schema(request=None, responses=QueueSerializer)
    @action(detail=True, methods=["post"])
    def open(self, request: Request, pk: str) -> Response:
        return self._answer(open_queue(queue=self.get_object(), user=self.person))

    @extend_schema(request=None, responses={200: ReviewSerializer, 204: None})
    @action(detail=True, methods=["post"])
    def claim(self, request: Request, pk: str) -> Response:
        """The item that you hold, or the next one, kept for you until `leased_until`; 204 when nothing is left."""
        review = claim_item(queue=self.get_object(), user=self.person)
        if review is None:
            return Response(status=HTTPStatus.NO_CONTENT)
        return Response(ReviewSerializer(review, context=self.get_serializer_context()).data)

    @extend_schema(request=UndoSerializer, responses=ReviewSerializer)
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, pk: str) -> Response:
        """Take back what you submitted or skipped last, within ten minutes: it is open again, with what it said as its
        draft. What you skipped and somebody else has by now is `lapsed`: you may still submit it."""
        body = UndoSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        wanted = body.validated_data.get("review")
        review = undo_review(queue=self.get_object(), user=self.person, wanted=wanted)
        return Response(ReviewSerializer(review, context=self.get_serializer_context()).data)

    @extend_schema(
        responses=QueueFiguresSerializer,
        parameters=[
            OpenApiParameter(
                "could_see_results",
                bool,
                description="`false` leaves reviews by people whose role showed them results out of the agreement, "
                "`true` keeps only those. Default: all reviews.",
            )
        ],
    )
    @action(detail=True)
    def figures(self, request: Request, pk: str) -> Response:
        """Progress, pace, agreement between people, with themselves, with verifiers and with judge models, and how
        often the longer attempt was preferred."""
        given = request.query_params.get("could_see_results")
        if given not in SEEING:
            message = "Give true or false."
            raise QueryProblem([{"pointer": "?could_see_results", "code": "invalid", "message": message}])
        figures = read_figures(self.get_object(), could_see_results=SEEING[given])
        return Response(QueueFiguresSerializer(figures).data)

    @extend_schema(
        responses={(200, "application/x-ndjson"): OpenApiTypes.BINARY, (200, "text/csv"): OpenApiTypes.BINARY},
        parameters=[OpenApiParameter("format", str, enum=list(FORMATS), default="ndjson")],
    )
    @action(detail=True, pagination_class=None, renderer_classes=[JSONRenderer, NdjsonRenderer, CsvRenderer])
    def export(self, request: Request, pk: str) -> HttpResponseBase:
        """Every submitted review of the queue, the oldest first, streamed as NDJSON or CSV."""
        name = request.query_params.get("format", "ndjson")
        if name not in FORMATS:
            message = f"Give {' or '.join(FORMATS)}."
            raise QueryProblem([{"pointer": "?format", "code": "invalid", "message": message}])
        queue = self.get_object()
        content_type, write = FORMATS[name]
        reviews = queue.reviews.submitted()
        latest = queue.reviews.order_by("-submitted_at").values_list("pk", "submitted_at").first()
        etag = f'"{queue.pk}-{name}-{reviews.count()}-{latest}"'.replace(" ", "")
        filename = f"queue-{queue.pk}.{name}"
        rows = one_by_one(write(reviews))
        response = stream_rows(request, rows, etag=etag, filename=filename, content_type=content_type)
        if response.streaming:
            record_export(user=self.person, reviews=reviews, format=name, target=f"queue {queue.pk}")
        return response

    def _answer(self, queue: Queue, status: int = HTTPStatus.OK) -> Response:
        return Response(QueueSerializer(queue, context=self.get_serializer_context()).data, status=status)


class QueueItemViewSet(ListModelMixin, RetrieveModelMixin, TableViewSet):
    queryset = QueueItem.objects.prefetch_related("entries")
    serializer_class = QueueItemSerializer
    filterset_class = QueueItemFilter
    ordering = "id"
    lookup_value_regex = "[0-9]+"
    problems = {"adjudicate": {409}}
    permissions = {"list": Permission.READ, "retrieve": Permission.READ, "adjudicate": Permission.LEAD}

    @extend_schema(request=AdjudicationSerializer, responses={201: ReviewSerializer})
    @action(detail=True, methods=["post"])
    def adjudicate(self, request: Request, pk: str) -> Response:
        """Settle what reviewers differ on: A is the first of the item's `rollouts`. The last adjudication stands; what
        people said is kept."""
        given = AdjudicationSerializer(data=request.data)
        given.is_valid(raise_exception=True)
        said = dict(given.validated_data)
        token, saw_votes = said.pop("token"), said.pop("saw_votes")
        review = adjudicate_item(
            item=self.get_object(), user=self.person, answer=Answer(**said), token=token, saw_votes=saw_votes
        )
        body = ReviewSerializer(review, context=self.get_serializer_context()).data
        return Response(body, status=HTTPStatus.CREATED)


def _fill(queue: Queue, sources: dict[str, Any], *, per_task: int, size: int) -> list[Item]:
    if len(sources) != 1:
        raise QueueRefused("Give one of collection, rollouts, filter and items.", "items")
    ((name, given),) = sources.items()
    queue.source = {name: {"collection": lambda: given.pk, "filter": lambda: given}.get(name, lambda: len(given))()}
    if name == "collection":
        return fill_from_collection(given.pk, kind=queue.kind, per_task=per_task, size=size, seed=queue.seed)
    if name == "filter":
        return fill_from_filter(given, kind=queue.kind, per_task=per_task, size=size, seed=queue.seed)
    if name == "rollouts":
        return fill_from_rollouts(given, kind=queue.kind, per_task=per_task, size=size, seed=queue.seed)
    return fill_from_sets(given, kind=queue.kind)
