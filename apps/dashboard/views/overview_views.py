"""The overview, background work, and search across all pages."""

from django.db.models import Sum
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.vary import vary_on_headers

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.activity_items import read_happening
from apps.dashboard.chrome.finder_entries import MOST_LETTERS, find_everything
from apps.dashboard.chrome.page_answers import POLL_ENDED, answer, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.overview.disk_use import read_disk
from apps.dashboard.overview.first_steps import read_steps
from apps.dashboard.overview.overview_rows import read_active, read_failures, read_latest
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.reviews.queues.waiting_items import read_waiting
from apps.rollouts.models import Collection
from apps.tasks.models import Dataset, DatasetVersion


def _task_count() -> int:
    """Return the number of tasks from the versions' counters, because counting millions of rows is slow."""
    ready = DatasetVersion.objects.filter(state=DatasetVersion.State.READY)
    total: int = ready.aggregate(total=Sum("task_count", default=0))["total"]
    return total


@allow(GET=Permission.MEMBER)
def home(request: PageRequest) -> HttpResponse:
    """Show the overview; annotators start on their queues."""
    if not user_may(request.user, Permission.READ):
        return redirect("dashboard:queue_list")
    active, latest = read_active(), read_latest()
    is_new = not active and not latest
    context = {
        "active": active,
        "waiting": read_waiting(request.user),
        "latest": latest,
        "failures": read_failures([*(each.collection for each in active), *(each.collection for each in latest)]),
        "disk": read_disk(),
        "steps": read_steps(f"{request.scheme}://{request.get_host()}") if is_new else [],
        "counts": [
            ("Datasets", Dataset.objects.count(), "dataset_list"),
            ("Tasks", _task_count(), "dataset_list"),
            ("Environments", Environment.objects.count(), "environment_list"),
            ("Models", PolicyModel.objects.count(), "model_list"),
            ("Collections", Collection.objects.listed().count(), "collection_list"),
        ],
    }
    return answer(request, "home/home.html", context, part="overview")


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
