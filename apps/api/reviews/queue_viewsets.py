"""Review queues: create, change, claim, adjudicate."""

from http import HTTPStatus

import django_filters
from django.db.models import QuerySet
from django.http import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.mixins import DestroyModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.keyset_reading import one_by_one
from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet, operation, row_action, row_deletion
from apps.api.framework.file_answers import TABLE_FILE, TABLE_RENDERERS, stream_rows
from apps.api.framework.query_filters import (
    FlagFilter,
    IdFilter,
    filter_set,
    read_choice,
    read_format,
    task_number_filter,
    with_integers,
)
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
from apps.gym.specs import spec_fields
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.agreement.queue_figures import read_figures
from apps.reviews.models import Queue, QueueItem
from apps.reviews.queues.item_leases import claim_item
from apps.reviews.queues.item_states import State
from apps.reviews.queues.queue_changes import change_queue, close_queue, create_queue, delete_queue, open_queue
from apps.reviews.queues.queue_filters import filter_items
from apps.reviews.queues.queue_items import ItemSource, fill_queue
from apps.reviews.queues.waiting_items import read_waiting
from apps.reviews.reviews.review_answers import Answer
from apps.reviews.reviews.review_files import FORMATS, record_export
from apps.reviews.reviews.undo import undo_review

SEEING = {"": None, "true": True, "false": False}


class QueueItemFilter(django_filters.FilterSet):
    """The filters of apps.reviews.queues.queue_filters, shared with pages and commands."""

    queue = IdFilter("queue")
    state = django_filters.ChoiceFilter(
        choices=State.choices, label="An item can have several states: reserved, and waiting for another review."
    )
    disputed = FlagFilter("doubt", label="Items with disagreements and no adjudication.")
    reviewer = django_filters.CharFilter(label="Items that this reviewer reviewed, skipped or has open.")
    verdict = django_filters.ChoiceFilter(
        choices=list(CHOICES.items()),
        label="Items with this verdict (A is the first of `rollouts`); with `reviewer`, of this reviewer.",
    )
    skipped = FlagFilter("reviews", label="Skipped items; with `reviewer`, by this reviewer.")
    task = IdFilter("task")
    task_number = task_number_filter("task__index")
    text = django_filters.CharFilter(label="Words in the task.")
    is_repeated = FlagFilter("is_repeated", label="Items that reviewers see twice.")

    def filter_queryset(self, queryset: QuerySet[QueueItem]) -> QuerySet[QueueItem]:
        return filter_items(queryset, with_integers(self.form.cleaned_data))


class QueueViewSet(DestroyModelMixin, RowViewSet):
    noun = "queue"
    queryset = Queue.objects.select_related("rubric")
    serializer_class = QueueSerializer
    filterset_class = filter_set(
        kind=django_filters.ChoiceFilter(choices=Queue.Kind.choices),
        is_open=FlagFilter("closed_at", lookup_expr="isnull"),
    )
    permissions = {
        **dict.fromkeys(["list", "retrieve"], Permission.READ_QUEUES),
        **dict.fromkeys(["waiting", "claim", "undo"], Permission.REVIEW),
        **dict.fromkeys(["create", "partial_update", "destroy", "close", "open", "export"], Permission.LEAD),
        "figures": Permission.READ,
    }

    def get_queryset(self) -> QuerySet[Queue]:
        """Return all queues; for annotators, the open ones that they may review."""
        queues: QuerySet[Queue] = super().get_queryset()
        if getattr(self, "swagger_fake_view", False) or self.may(Permission.READ):
            return queues
        return queues.filter(pk__in=Queue.objects.open().for_reviewer(self.user.pk).values("pk"))

    @extend_schema(request=QueuePlanSerializer, responses={201: QueueSerializer})
    def create(self, request: Request) -> Response:
        """Create a queue from a collection, rollouts, a filter, or explicit items.

        Anything not enabled stays hidden from reviewers.
        """
        wanted = self.read_body(QueuePlanSerializer)
        reviewers = wanted.pop("reviewers", [])
        source = ItemSource(**{name: wanted.pop(name) for name in spec_fields(ItemSource) if name in wanted})
        queue = Queue(**wanted)
        items = fill_queue(queue, source)
        made = create_queue(queue=queue, items=items, reviewers=reviewers, user=self.user)
        return self._answer(made, HTTPStatus.CREATED)

    @operation(
        "get",
        detail=False,
        pagination_class=None,
        filterset_class=None,
        responses=WaitingSerializer(many=True),
        filters=False,
    )
    def waiting(self, request: Request) -> Response:
        """List the queues with items for you to review.

        Queues in which you have an open item come first, then queues that list you as a reviewer.
        """
        return Response(WaitingSerializer(read_waiting(self.user), many=True).data)

    @extend_schema(request=QueueChangeSerializer, responses=QueueSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change name, instructions, overlap, order, lease time or reviewers. Other fields cannot change."""
        queue = self.get_object()
        context = {"shown": self._answer(queue).data, "changing": {"is_open", "item_count"}}
        changes = self.read_body(QueueChangeSerializer, partial=True, context=context)
        reviewers = changes.pop("reviewers", None)
        queue = change_queue(queue=queue, changes=changes, reviewers=reviewers, user=self.user)
        return self._answer(queue)

    perform_destroy = row_deletion(delete_queue, "Delete a queue without submitted reviews. Otherwise close it.")
    close = row_action("close", close_queue, "Close the queue: no more items are assigned.")
    open = row_action("open", open_queue, "")

    @operation(responses={200: ReviewSerializer, 204: None})
    def claim(self, request: Request, pk: str) -> Response:
        """Claim the item that you hold, or the next one, reserved until `leased_until`. 204 if nothing is left."""
        review = claim_item(queue=self.get_object(), user=self.user)
        if review is None:
            return Response(status=HTTPStatus.NO_CONTENT)
        return Response(ReviewSerializer(review, context=self.get_serializer_context()).data)

    @operation(request=UndoSerializer, responses=ReviewSerializer)
    def undo(self, request: Request, pk: str) -> Response:
        """Undo your last submission or skip, within ten minutes: the review is open again with its answer as a draft.

        If another reviewer has the skipped item, the review is `lapsed` and can still be submitted.
        """
        wanted = self.read_body(UndoSerializer).get("review")
        review = undo_review(queue=self.get_object(), user=self.user, wanted=wanted)
        return Response(ReviewSerializer(review, context=self.get_serializer_context()).data)

    @operation(
        "get",
        responses=QueueFiguresSerializer,
        parameters=[
            OpenApiParameter(
                "could_see_results",
                bool,
                description="`false` excludes reviews by users who could see results from the agreement, `true` "
                "keeps only these. Default: all reviews.",
            )
        ],
    )
    def figures(self, request: Request, pk: str) -> Response:
        """Return the figures of the queue.

        Progress, pace, agreement between reviewers, with themselves, with verifiers and with judge models, and how
        often the longer rollout was preferred.
        """
        given = read_choice(request, "could_see_results", SEEING, message="Give true or false.")
        figures = read_figures(self.get_object(), could_see_results=SEEING[given])
        return Response(QueueFiguresSerializer(figures).data)

    @operation("get", pagination_class=None, renderer_classes=TABLE_RENDERERS, **TABLE_FILE)
    def export(self, request: Request, pk: str) -> HttpResponseBase:
        """Download all submitted reviews of the queue, oldest first, as NDJSON or CSV."""
        queue = self.get_object()
        name, content_type, write = read_format(request, FORMATS)
        reviews = queue.reviews.submitted()
        latest = queue.reviews.order_by("-submitted_at").values_list("pk", "submitted_at").first()
        etag = f'"{queue.pk}-{name}-{reviews.count()}-{latest}"'.replace(" ", "")
        filename = f"queue-{queue.pk}.{name}"
        rows = one_by_one(write(reviews))
        response = stream_rows(request, rows, etag=etag, filename=filename, content_type=content_type)
        if response.streaming:
            record_export(user=self.user, reviews=reviews, format=name, target=f"queue {queue.pk}")
        return response

    def _answer(self, queue: Queue, status: int = HTTPStatus.OK) -> Response:
        return Response(QueueSerializer(queue, context=self.get_serializer_context()).data, status=status)


class QueueItemViewSet(RowViewSet):
    queryset = QueueItem.objects.prefetch_related("entries")
    serializer_class = QueueItemSerializer
    filterset_class = QueueItemFilter
    ordering = "id"
    permissions = {"list": Permission.READ, "retrieve": Permission.READ, "adjudicate": Permission.LEAD}

    @operation(request=AdjudicationSerializer, responses={201: ReviewSerializer})
    def adjudicate(self, request: Request, pk: str) -> Response:
        """Adjudicate an item; A is the first of its `rollouts`. The last adjudication counts. All reviews are kept."""
        said = self.read_body(AdjudicationSerializer)
        token, saw_votes = said.pop("token"), said.pop("saw_votes")
        review = adjudicate_item(
            item=self.get_object(), user=self.user, answer=Answer(**said), token=token, saw_votes=saw_votes
        )
        body = ReviewSerializer(review, context=self.get_serializer_context()).data
        return Response(body, status=HTTPStatus.CREATED)
