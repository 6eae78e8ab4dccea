"""The trace of a rollout."""

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.vary import vary_on_headers

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.review_forms import CommentForm
from apps.dashboard.live.followed_attempt import Mark, read_news, read_parts
from apps.dashboard.reviewing.rollout_reviews import read_judgement
from apps.dashboard.tables.neighbours import Neighbours, find_neighbours
from apps.dashboard.traces.trace_view import TraceView
from apps.dashboard.views.rollouts.trace_part_views import attempt_context, find_rollout, read_attempt, read_place
from apps.reviews.comments.commenting import add_comment
from apps.rollouts.models import Rollout
from apps.rollouts.steering.controls import resolve_flag

NOT_CHANGED = 204


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show the trace.

    While the rollout runs, the page receives new events by WebSocket, or polls for events after its mark.
    """
    rollout = find_rollout(pk)
    if wants_fragment(request):
        seen = Mark.parse(request.GET.get("seen", "")) or Mark("", -1, 0)
        parts = read_news(rollout, request.user, seen)
        if parts is None:
            return HttpResponse(status=NOT_CHANGED)
        return render(request, "rollouts/_rollout_live.html", parts)
    context = read_parts(rollout, request.user, read_attempt(request, rollout), step=read_place(request, "step"))
    return _page(request, rollout, context | {"form": CommentForm.opened_with(request.GET)})


@allow(POST=Permission.COMMENT)
def rollout_comment(request: PageRequest, pk: int) -> HttpResponse:
    rollout = find_rollout(pk)
    form = CommentForm(request.POST)
    if form.is_valid():
        with show_errors(form):
            comment = add_comment(rollout=rollout, author=request.user, **form.cleaned_data)
            messages.success(request, "Comment added.")
            return redirect(f"{reverse('dashboard:rollout_detail', args=[pk])}#c{comment.pk}")
    return _page(request, rollout, read_parts(rollout, request.user, rollout.attempt) | {"form": form}, status=422)


rollout_resolve_flag = action_view(
    Permission.EXPORT,
    resolve_flag,
    Rollout,
    "rollout",
    page="rollout_detail",
    success="Redactions marked as reviewed. Exports include this rollout again.",
)


def _page(request: PageRequest, rollout: Rollout, context: dict[str, Any], *, status: int = 200) -> HttpResponse:
    group = list(
        Rollout.objects.filter(collection=rollout.collection_id, task=rollout.task_id)
        .order_by("repeat")
        .only("id", "repeat", "status", "reward")
    )
    place = next(index for index, each in enumerate(group) if each.pk == rollout.pk)
    noise = TraceView.read(request)
    links = attempt_context(request, rollout, context["attempt"])
    listed = request.GET.get("list", "")
    beside = find_neighbours(listed, rollout)
    in_list = urlencode({"list": listed}) + "&" if beside else ""
    if beside is None:
        numbers = [None, *(each.pk for each in group), None]
        beside = Neighbours(previous=numbers[place], next=numbers[place + 2])
    return render(
        request,
        "rollouts/trace.html",
        context
        | links
        | {
            "noise": noise,
            "list_query": in_list,
            "page_query": f"{in_list}{noise.query}{links['attempt_more']}&",
            "group": group,
            "place": place + 1,
            "beside": beside,
            "comments": rollout.comments.select_related("author"),
            "judgement": read_judgement(rollout),
        },
        status=status,
    )
