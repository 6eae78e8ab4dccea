"""Reverifications: preview the changes and apply them."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from apps.accounts.permissions import Permission, allow
from apps.dashboard.charts.histogram import draw_histogram
from apps.dashboard.chrome.page_answers import POLL_ENDED, answer, posted, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view, list_view
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.reverification_forms import ReverificationForm
from apps.rollouts.models import Reverification
from apps.rollouts.reverification.reverification_jobs import (
    apply_reverification,
    cancel_reverification,
    queue_reverification,
)
from apps.rollouts.reverification.reward_changes import compare_rewards
from apps.rollouts.search.keyset_pages import page_by_id

SHOWN = {"changed": {"changed": True}, "failed": {"new_reward__isnull": True}, "all": {}}


_ROWS = Reverification.objects.select_related("collection", "created_by")

reverification_list = list_view(_ROWS, "reverifications/list.html", part="reverifications")
reverification_apply = action_view(
    Permission.COLLECT, apply_reverification, _ROWS, "reverification", page="reverification_detail"
)
reverification_cancel = action_view(
    Permission.COLLECT, cancel_reverification, _ROWS, "reverification", page="reverification_detail"
)


@allow(GET=Permission.COLLECT, POST=Permission.COLLECT)
def reverification_create(request: PageRequest) -> HttpResponse:
    given = {name: request.GET[name] for name in ("collection", "error_kind") if name in request.GET}
    form = ReverificationForm(posted(request), initial=given)
    if form.is_valid():
        with show_errors(form):
            queued = queue_reverification(form.order, user=request.user)
            return redirect("dashboard:reverification_detail", pk=queued.pk)
    return render(request, "reverifications/create.html", {"form": form}, status=422 if form.is_bound else 200)


@allow(GET=Permission.READ)
def reverification_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show the reverification. The page polls its live part until the worker has finished."""
    reverification = get_object_or_404(_ROWS, pk=pk)
    shown = request.GET.get("show", "changed")
    shown = shown if shown in SHOWN else "changed"
    rewards = reverification.rewards.filter(**SHOWN[shown]).select_related("rollout__task")
    comparison = compare_rewards(reverification)
    context = {
        "reverification": reverification,
        "comparison": comparison,
        "errors": [(kind, count, _example(reverification, kind)) for kind, count in comparison.errors.items()],
        "histogram": draw_histogram(comparison.histogram),
        "shown": shown,
        "page": page_by_id(rewards, request.GET.get("after", ""), descending=False),
    }
    status = POLL_ENDED if reverification.is_settled and wants_fragment(request) else 200
    return answer(request, "reverifications/detail.html", context, part="live", status=status)


def _example(reverification: Reverification, kind: str) -> str:
    failed = reverification.rewards.filter(error_kind=kind).order_by("pk")
    return failed.values_list("error_message", flat=True).first() or ""
