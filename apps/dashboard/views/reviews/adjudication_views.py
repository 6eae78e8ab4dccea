"""Adjudicate disputed items, blind as in the queue, or with the reviews on request."""

import uuid
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.forms.review_forms import read_posted_answer
from apps.dashboard.reviewing.review_words import describe_review
from apps.dashboard.reviewing.work_items import read_fields, read_judged
from apps.gym.traces.items import input_items
from apps.reviews.agreement.adjudication import adjudicate_item
from apps.reviews.agreement.queue_agreement import read_disputed
from apps.reviews.models import Queue, QueueItem, Review
from apps.reviews.queues.blind_items import LABELS
from apps.reviews.queues.item_leases import CannotReview
from apps.reviews.reviews.review_answers import AnswerRefused

_SEEN = "items_seen"
_MOST_SEEN = 500
_SAID = ("choice", "ranks", "scores", "reasons", "note", "confidence")


@allow(GET=Permission.READ, POST=Permission.LEAD)
def queue_item(request: PageRequest, pk: int) -> HttpResponse:
    """Show an item and its adjudication.

    `?show=1` reveals reviews, rewards and models; the session remembers it, and the adjudication records it. Users who
    cannot adjudicate see everything at once.
    """
    item = get_object_or_404(QueueItem.objects.select_related("queue__rubric", "task"), pk=pk)
    queue, errors = item.queue, dict[str, str]()
    rollouts = list(item.entries.order_by("place").values_list("rollout_id", flat=True))
    if request.method == "POST" and "show" in request.POST:
        _remember(request, pk)
        return redirect(f"{request.path}?show=1")
    saw_votes = pk in request.session.get(_SEEN, [])
    shows = not user_may(request.user, Permission.LEAD) or (saw_votes and "show" in request.GET)
    standing = Review.objects.filter(item=item, is_adjudication=True).submitted().select_related("reviewer").first()
    draft = Review(queue=queue, item=item, arrangement=rollouts, is_adjudication=True)
    draft.draft = {name: getattr(standing, name) for name in _SAID} if standing is not None else {}
    before, after = _neighbours(item)
    if request.method == "POST":
        ranked = item.size if queue.kind == Queue.Kind.RANKING else 0
        said = read_posted_answer(request.POST, queue.criteria, ranked)
        token, draft.draft = request.POST.get("token", "")[:64], msgspec.structs.asdict(said)
        try:
            adjudicate_item(item=item, user=request.user, answer=said, token=token, saw_votes=saw_votes)
        except AnswerRefused as refusal:
            errors = refusal.wrong
        except CannotReview as refusal:
            errors = {"": str(refusal)}
        else:
            if after is None:
                messages.success(request, "Adjudicated.")
            return redirect(_way_on(item, after))
    context: dict[str, Any] = {
        "queue": queue,
        "item": item,
        "review": draft,
        "judged": read_judged(draft, whole=shows),
        "prompt": input_items(item.task.masked_row),
        "fields": read_fields(draft, errors),
        "people": Review.objects.filter(item=item).independent().count(),
        "rollouts": list(zip(LABELS, rollouts, strict=False)),
        "shows": shows,
        "saw_votes": saw_votes,
        "standing": standing,
        "previous": before,
        "next": after,
        "way_on": _way_on(item, after),
        "settled": _settled(queue, request.GET.get("settled", "")),
        "token": uuid.uuid4().hex,
    }
    if shows:
        reviews = Review.objects.filter(item=item).exclude(status__in=[Review.Status.OPEN, Review.Status.LAPSED])
        told = reviews.select_related("reviewer").order_by("pk")
        context["said"] = [(each, describe_review(each, rollouts, queue.rubric)) for each in told]
    return render(request, "queues/item.html", context, status=422 if errors else 200)


def _remember(request: PageRequest, pk: int) -> None:
    """Remember in the session that this user has seen the reviews of the item."""
    seen: list[int] = request.session.get(_SEEN, [])
    request.session[_SEEN] = [*(each for each in seen if each != pk), pk][-_MOST_SEEN:]


def _neighbours(item: QueueItem) -> tuple[int | None, int | None]:
    """Return the previous and next disputed item of the queue; after the last one, the first."""
    disputed = [each.pk for each in read_disputed(item.queue)]
    at = disputed.index(item.pk) if item.pk in disputed else len(disputed)
    others = [*disputed[at + 1 :], *disputed[:at]]
    return (disputed[at - 1] if 0 < at < len(disputed) else None), (others[0] if others else None)


def _way_on(item: QueueItem, after: int | None) -> str:
    """Return the URL to open after this item is adjudicated."""
    if after is None:
        return reverse("dashboard:queue_detail", args=[item.queue_id])
    return f"{reverse('dashboard:queue_item', args=[after])}?{urlencode({'settled': item.pk})}"


def _settled(queue: Queue, given: str) -> QueueItem | None:
    """Return the previously adjudicated item, which can be reopened."""
    return QueueItem.objects.filter(queue=queue, pk=read_number(given) or 0, is_adjudicated=True).first()
