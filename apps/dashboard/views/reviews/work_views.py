"""Work pages, on which users review one item after another, with the keyboard or forms."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.vary import vary_on_headers

from apps.accounts.models import User
from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.page_answers import show_refusal, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.forms.review_forms import read_posted_answer
from apps.dashboard.reviewing.work_items import count_mine, count_work, read_fields, read_judged, read_text
from apps.dashboard.views.rollouts.trace_part_views import INERT
from apps.gym.traces.items import input_items
from apps.reviews.models import Queue, QueueItem, Review
from apps.reviews.queues.blind_items import reveal
from apps.reviews.queues.hidden_items import find_suspended_reviews
from apps.reviews.queues.item_leases import CannotReview, check_may_review, claim_item, find_open_review, skip_item
from apps.reviews.queues.waiting_items import count_with_others, read_waiting
from apps.reviews.reviews.drafts import draft_as_text
from apps.reviews.reviews.fast_reviews import find_fast_review
from apps.reviews.reviews.review_answers import AnswerRefused
from apps.reviews.reviews.submission import find_lapsed, submit_review
from apps.reviews.reviews.undo import find_undoable, undo_review


def queues_for(user: User) -> Any:
    """Return the queues that this user may see."""
    if user_may(user, Permission.READ):
        return Queue.objects.select_related("rubric", "created_by")
    mine = Queue.objects.open().for_reviewer(user.pk).values("pk")
    return Queue.objects.filter(pk__in=mine).select_related("rubric", "created_by")


@allow(GET=Permission.REVIEW, POST=Permission.REVIEW)
def queue_work(request: PageRequest, pk: int) -> HttpResponse:
    """GET shows the open item, or with `?review=` another open one or one whose reservation expired.

    POST claims the next item. Users with drafts learn if the queue was closed or reassigned, and get their drafts.
    """
    queue = find_queue(request.user, pk)
    if request.method == "POST":
        return _go_on(request, queue)
    try:
        check_may_review(queue, request.user)
    except CannotReview as refusal:
        begun = Review.objects.filter(queue=queue, reviewer=request.user, is_adjudication=False)
        unsaid = begun.exclude(status=Review.Status.SUBMITTED).order_by("pk").values_list("draft", flat=True)
        context = _idle(request, queue, refusal=str(refusal), unsaid=map(draft_as_text, unsaid))
        return render(request, "queues/idle.html", {**context, "kept": find_suspended_reviews(queue, request.user)})
    lapsed = find_lapsed(queue, request.user)
    wanted = read_number(request.GET.get("review", ""))
    named = next((each for each in lapsed if each.pk == wanted), None)
    held = named or (wanted and find_open_review(queue, request.user, wanted)) or find_open_review(queue, request.user)
    if held is None:
        left = sum(each.left for each in read_waiting(request.user, [queue]))
        told = [(each, draft_as_text(each.draft)) for each in lapsed]
        others = 0 if left else count_with_others(queue, request.user)
        context = {**_idle(request, queue), "lapsed": told, "left": left, "with_others": others}
        return render(request, "queues/idle.html", context)
    return _work(request, queue, held, {}, lapsed=[each for each in lapsed if each != held])


@allow(POST=Permission.REVIEW)
def review_submit(request: PageRequest, pk: int) -> HttpResponse:
    review = _own(request, pk)
    queue = review.queue
    assert queue is not None
    ranked = len(review.arrangement) if queue.kind == Queue.Kind.RANKING else 0
    answer = read_posted_answer(request.POST, queue.criteria, ranked)
    try:
        submit_review(review=review, user=request.user, token=request.POST.get("token", "")[:64], answer=answer)
    except AnswerRefused as refusal:
        review.draft = msgspec.structs.asdict(answer)
        return _work(request, queue, review, refusal.wrong, status=422)
    except CannotReview as refusal:
        # The text is shown for copying.
        context = _idle(request, queue, refusal=str(refusal), unsaid=[draft_as_text(msgspec.structs.asdict(answer))])
        return render(request, "queues/idle.html", context, status=409)
    return _go_on(request, queue)


@allow(GET=Permission.REVIEW)
@vary_on_headers("HX-Request")
def review_text(request: PageRequest, pk: int, side: str, step: int) -> HttpResponse:
    """Return the full text of a step that the page of an open review truncates, for the page or by itself."""
    review = _own(request, pk)
    text = read_text(review, side, step) if review.status in {Review.Status.OPEN, Review.Status.LAPSED} else None
    return _answer_text(request, text)


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def queue_item_text(request: PageRequest, pk: int, side: str, step: int) -> HttpResponse:
    """Return the text like review_text, for the page of an item; with `?show=1` if the page shows everything."""
    item = get_object_or_404(QueueItem.objects.select_related("queue", "task"), pk=pk)
    rollouts = list(item.entries.order_by("place").values_list("rollout_id", flat=True))
    draft = Review(queue=item.queue, item=item, arrangement=rollouts, is_adjudication=True)
    return _answer_text(request, read_text(draft, side, step, whole="show" in request.GET))


def _answer_text(request: PageRequest, text: str | None) -> HttpResponse:
    if text is None:
        raise Http404("no such step is shown")
    if wants_fragment(request):
        return render(request, "queues/_whole_text.html", {"text": text})
    answer = HttpResponse(text.encode(errors="replace"), content_type="text/plain; charset=utf-8")
    answer["Content-Security-Policy"] = INERT
    return answer


@allow(POST=Permission.REVIEW)
def review_skip(request: PageRequest, pk: int) -> HttpResponse:
    review = _own(request, pk)
    assert review.queue is not None
    with show_refusal(request):
        skip_item(review=review, user=request.user, reason=request.POST.get("reason", ""))
        return _go_on(request, review.queue)
    return redirect("dashboard:queue_work", pk=review.queue.pk)


@allow(POST=Permission.REVIEW)
def review_undo(request: PageRequest, pk: int) -> HttpResponse:
    """Undo the user's last submission or skip.

    `review` is the one shown on the page, so that a repeated request undoes only once.
    """
    queue = find_queue(request.user, pk)
    with show_refusal(request):
        undone = undo_review(queue=queue, user=request.user, wanted=read_number(request.POST.get("review", "")))
        is_late = undone.status == Review.Status.LAPSED
        late = " Another reviewer has the item now. You can still submit your review." if is_late else ""
        messages.success(request, f"Undone. The item is open again.{late}")
        if is_late:
            return redirect(f"{reverse('dashboard:queue_work', args=[pk])}?review={undone.pk}")
    return redirect("dashboard:queue_work", pk=pk)


def find_queue(user: User, pk: int) -> Queue:
    """Return a queue that this user may see or has worked in."""
    worked = Review.objects.filter(reviewer=user, queue=pk, is_adjudication=False).values("queue")
    either = Q(pk__in=queues_for(user).values("pk")) | Q(pk__in=worked)
    found: Queue = get_object_or_404(Queue.objects.filter(either).select_related("rubric", "created_by"), pk=pk)
    return found


def _go_on(request: PageRequest, queue: Queue) -> HttpResponse:
    with show_refusal(request):
        claim_item(queue=queue, user=request.user)
    return redirect("dashboard:queue_work", pk=queue.pk)


def _own(request: PageRequest, pk: int) -> Review:
    reviews = Review.objects.filter(reviewer=request.user, queue__isnull=False, is_adjudication=False)
    return get_object_or_404(reviews.select_related("queue__rubric", "item__task"), pk=pk)


def _work(
    request: PageRequest,
    queue: Queue,
    review: Review,
    errors: dict[str, str],
    *,
    status: int = 200,
    lapsed: Sequence[Review] = (),
) -> HttpResponse:
    assert review.item is not None
    context = {
        "queue": queue,
        "review": review,
        "judged": read_judged(review),
        "prompt": input_items(review.item.task.masked_row),
        "fields": read_fields(review, errors),
        "mine": count_work(queue, request.user),
        "undoable": find_undoable(queue, request.user),
        "token": uuid.uuid4().hex,
        "lapsed": lapsed,
        "revealed": _revealed(queue, request.user),
        "haste": find_fast_review(queue, request.user),
    }
    return render(request, "queues/work.html", context, status=status)


def _idle(request: PageRequest, queue: Queue, *, refusal: str = "", unsaid: Iterable[str] = ()) -> dict[str, Any]:
    return {
        "queue": queue,
        "mine": count_mine(queue, request.user.pk),
        "undoable": find_undoable(queue, request.user),
        "revealed": _revealed(queue, request.user),
        "haste": find_fast_review(queue, request.user),
        "refusal": refusal,
        "unsaid": [each for each in unsaid if each],
    }


def _revealed(queue: Queue, user: User) -> list[dict[str, Any]]:
    """Return the results of the last submission, in training queues."""
    if not queue.reveals:
        return []
    last = Review.objects.filter(queue=queue, reviewer=user).submitted().order_by("-submitted_at", "-pk").first()
    if last is not None:
        last.queue = queue
    return reveal(last) if last is not None else []
