"""Reverifications: what verifying again would change, and the button that changes it."""

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from apps.accounts.permissions import Permission, allow
from apps.dashboard.charts.histogram import draw_histogram
from apps.dashboard.chrome.page_answers import answer, tell_refusal, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.fields import add_errors
from apps.dashboard.forms.reverification_forms import ReverificationForm
from apps.rollouts.models import Reverification
from apps.rollouts.reverification.reverification_jobs import (
    ReverifyRefused,
    apply_reverification,
    cancel_reverification,
    queue_reverification,
)
from apps.rollouts.reverification.reward_changes import compare_rewards
from apps.rollouts.search.keyset_pages import page_by_id

POLL_ENDED = 286  # htmx: swap, and stop polling
SHOWN = {"changed": {"changed": True}, "failed": {"new_reward__isnull": True}, "all": {}}


@allow(GET=Permission.READ)
def reverification_list(request: PageRequest) -> HttpResponse:
    rows = Reverification.objects.select_related("collection", "created_by")
    page = page_by_id(rows, request.GET.get("after", ""))
    return answer(request, "reverifications/list.html", {"page": page}, part="reverifications")


@allow(GET=Permission.COLLECT, POST=Permission.COLLECT)
def reverification_create(request: PageRequest) -> HttpResponse:
    if request.method != "POST":
        given = {name: request.GET[name] for name in ("collection", "error_kind") if name in request.GET}
        return render(request, "reverifications/create.html", {"form": ReverificationForm(initial=given)})
    form = ReverificationForm(request.POST)
    if form.is_valid():
        wish = form.cleaned_data
        try:
            queued = queue_reverification(
                collection=wish["collection"],
                filters=form.filters,
                force=wish["force"],
                replay=wish["replay"],
                user=request.user,
            )
        except ReverifyRefused as refusal:
            add_errors(form, refusal)
        else:
            return redirect("dashboard:reverification_detail", pk=queued.pk)
    return render(request, "reverifications/create.html", {"form": form}, status=422)


@allow(GET=Permission.READ)
def reverification_detail(request: PageRequest, pk: int) -> HttpResponse:
    """The page; it polls its live part until the worker is done."""
    reverification = _reverification(pk)
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


@allow(POST=Permission.COLLECT)
def reverification_apply(request: PageRequest, pk: int) -> HttpResponse:
    with tell_refusal(request):
        apply_reverification(reverification=_reverification(pk), user=request.user)
    return redirect("dashboard:reverification_detail", pk=pk)


@allow(POST=Permission.COLLECT)
def reverification_cancel(request: PageRequest, pk: int) -> HttpResponse:
    with tell_refusal(request):
        cancel_reverification(reverification=_reverification(pk), user=request.user)
    return redirect("dashboard:reverification_detail", pk=pk)


def _reverification(pk: int) -> Reverification:
    return get_object_or_404(Reverification.objects.select_related("collection", "created_by"), pk=pk)
