"""The quick pass: review several items of a queue on one page, by their final answers."""

import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import carry_out
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.forms.review_forms import read_posted_answer
from apps.dashboard.reviewing.work_items import count_work, read_answers, read_fields, read_prompt_images
from apps.dashboard.traces.cards import Image
from apps.dashboard.views.reviews.work_views import find_queue
from apps.reviews.models import Queue, Review
from apps.reviews.queues.item_leases import CannotReview, claim_items, find_open
from apps.reviews.reviews.review_answers import Answer, AnswerRefused
from apps.reviews.reviews.submission import submit_review

ITEMS = 10

_Refused = tuple[Answer, AnswerRefused | CannotReview]


@dataclass(frozen=True, slots=True)
class PassItem:
    """An item of the pass. Names of its form fields begin with `prefix`."""

    review: Review
    prefix: str
    images: list[Image]
    answers: list[dict[str, Any]]
    fields: dict[str, Any]
    token: str
    problem: str = ""


@allow(GET=Permission.REVIEW, POST=Permission.REVIEW)
def queue_quick_pass(request: PageRequest, pk: int) -> HttpResponse:
    """GET shows the open items. POST submits those with an answer, then reserves further items, up to ITEMS."""
    queue = find_queue(request.user, pk)
    if queue.kind == Queue.Kind.RANKING:
        raise Http404("rankings have no quick pass")
    refused: dict[int, _Refused] = {}
    if request.method == "POST":
        refused, submitted = _submit(request, queue)
        if submitted:
            messages.success(request, f"{submitted} review{'' if submitted == 1 else 's'} submitted.")
        if not refused:
            return carry_out(
                request,
                lambda: claim_items(queue=queue, user=request.user, number=ITEMS),
                then=request.path,
                refused=reverse("dashboard:queue_work", args=[pk]),
            )
    items = [_show(review, refused.pop(review.pk, None)) for review in find_open(queue, request.user)[:ITEMS]]
    for _, problem in refused.values():
        messages.error(request, str(problem))
    context = {"queue": queue, "items": items, "mine": count_work(queue, request.user)}
    status = 422 if any(item.problem for item in items) else 200
    return render(request, "queues/quick_pass.html", context, status=status)


def _submit(request: PageRequest, queue: Queue) -> tuple[dict[int, _Refused], int]:
    """Submit the answered items. Return refused answers by review, and the number of submitted reviews."""
    mine = Review.objects.filter(reviewer=request.user, queue=queue, is_adjudication=False)
    named = [number for text in request.POST.getlist("review")[:ITEMS] if (number := read_number(text)) is not None]
    given = {review: _fields_of(request.POST, review.pk) for review in mine.filter(pk__in=named)}
    answers = {review: read_posted_answer(fields, queue.criteria, 0) for review, fields in given.items()}
    answered = {review: answer for review, answer in answers.items() if _is_answered(answer)}
    refused: dict[int, _Refused] = {}
    for review, answer in answered.items():
        try:
            submit_review(
                review=review,
                user=request.user,
                token=given[review].get("token", "")[:64],
                answer=answer,
                shown_with=len(answered),
            )
        except (AnswerRefused, CannotReview) as problem:
            refused[review.pk] = answer, problem
    return refused, len(answered) - len(refused)


def _is_answered(answer: Answer) -> bool:
    return bool(answer.choice) or any(score is not None for score in answer.scores.values())


def _fields_of(given: QueryDict, pk: int) -> QueryDict:
    """Return the fields of one review without their prefix."""
    fields = QueryDict(mutable=True)
    prefix = _prefix(pk)
    for name, values in given.lists():
        if name.startswith(prefix):
            fields.setlist(name.removeprefix(prefix), values)
    return fields


def _prefix(pk: int) -> str:
    return f"r{pk}-"


def _show(review: Review, refused: _Refused | None) -> PassItem:
    answer, problem = refused or (None, None)
    if answer is not None:
        review.draft = msgspec.structs.asdict(answer)
    fields = read_fields(review, problem.wrong if isinstance(problem, AnswerRefused) else {})
    return PassItem(
        review,
        _prefix(review.pk),
        read_prompt_images(review),
        read_answers(review),
        fields,
        uuid.uuid4().hex,
        str(problem or ""),
    )
