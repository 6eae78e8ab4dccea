"""The overview, background work, and search across all pages."""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.vary import vary_on_headers

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.activity_items import read_happening
from apps.dashboard.chrome.finder_entries import MOST_LETTERS, find_everything
from apps.dashboard.chrome.page_answers import POLL_ENDED, answer, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.overview.disk_use import read_disk
from apps.dashboard.overview.first_steps import HIDDEN, read_steps
from apps.dashboard.overview.overview_rows import read_active, read_failures, read_latest
from apps.dashboard.overview.reward_trends import add_trends, latest_result
from apps.exports.rechecks.stale_outputs import collections_to_recheck
from apps.reviews.queues.waiting_items import read_waiting
from apps.rollouts.plans.sample_data import plan_sample
from apps.tasks.models import Dataset

TRENDS = 8
"""Datasets with the newest results, whose trends are shown."""


@allow(GET=Permission.MEMBER)
def home(request: PageRequest) -> HttpResponse:
    """Show the overview; annotators start on their queues."""
    if not user_may(request.user, Permission.READ):
        return redirect("dashboard:queue_list")
    active, latest = read_active(), read_latest()
    is_new = not active and not latest
    is_hidden = not is_new and HIDDEN in request.COOKIES
    steps = [] if is_hidden else read_steps(f"{request.scheme}://{request.get_host()}")
    datasets = Dataset.objects.annotate(latest_id=latest_result("dataset")).exclude(latest_id=None)
    context = {
        "active": active,
        "waiting": read_waiting(request.user),
        "latest": latest,
        "failures": read_failures([*(each.collection for each in active), *(each.collection for each in latest)]),
        "disk": read_disk(),
        "earlier_count": collections_to_recheck().count(),
        "is_new": is_new,
        "steps": steps if is_new or not all(step.done for step in steps) else [],
        "trends": add_trends(datasets.order_by("-latest_id")[:TRENDS]),
    }
    return answer(request, "home/home.html", context, part="overview")


@allow(POST=Permission.COLLECT)
def load_sample(request: PageRequest) -> HttpResponse:
    """Show the sample collection, after planning it on first use."""
    collection = plan_sample(request.user, idempotency_key="sample data")
    return redirect("dashboard:collection_detail", collection.pk)


@allow(POST=Permission.MEMBER)
def hide_first_steps(request: PageRequest) -> HttpResponse:
    """Hide the first steps in this browser."""
    response = redirect("dashboard:home")
    response.set_cookie(HIDDEN, "hidden", max_age=31_536_000, samesite="Lax", secure=request.is_secure())
    return response


@allow(GET=Permission.READ)
def activity(request: PageRequest) -> HttpResponse:
    """Show background work. htmx gets the status bar, and 286 to stop polling if nothing is in progress."""
    happening = read_happening()
    status = POLL_ENDED if wants_fragment(request) and not happening.tasks else 200
    return answer(request, "activity/activity.html", {"happening": happening}, part="menu", status=status)


@allow(GET=Permission.MEMBER)
@vary_on_headers("HX-Request", "Cookie")
def find(request: PageRequest) -> HttpResponse:
    """Show search results as a page; the palette requests only the options."""
    text = request.GET.get("q", "")[:MOST_LETTERS]
    context = {"text": text, "groups": find_everything(request.user, text), "most_letters": MOST_LETTERS}
    name = "_options" if wants_fragment(request) else "find"
    return render(request, f"finding/{name}.html", context)
