"""Trackers, the runs of a collection at trackers, and pushes of an export to the Hugging Face Hub."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.tracking_forms import PushForm, TrackerForm, TrackingForm
from apps.exports.models import Export
from apps.rollouts.models import Collection
from apps.tracking.hub_pushes import queue_push
from apps.tracking.models import HubPush, TrackedRun, Tracker
from apps.tracking.run_links import delete_run, resend_run, stop_run, track_collection
from apps.tracking.tracker_changes import delete_tracker, save_tracker

_RUNS = TrackedRun.objects.select_related("tracker", "collection")


@allow(GET=Permission.READ)
def tracker_list(request: PageRequest) -> HttpResponse:
    """List the trackers, each with its latest runs."""
    runs = _RUNS.order_by("-pk")[:50]
    return render(request, "tracking/list.html", {"trackers": Tracker.objects.all(), "runs": runs})


@sensitive_post_parameters("secret")
@sensitive_variables("form")
@never_cache
@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def tracker_edit(request: PageRequest, pk: int | None = None) -> HttpResponse:
    """Edit the tracker, or create one."""
    tracker = get_object_or_404(Tracker, pk=pk) if pk else Tracker()
    form = TrackerForm(posted(request), instance=tracker)
    if form.is_valid():
        with show_errors(form):
            saved = save_tracker(tracker=form.instance, secret=form.given_secret, user=request.user)
            messages.success(request, f"The tracker {saved.name} is saved.")
            return go(request, "dashboard:tracker_list")
    return answer_form(request, "tracking/form.html", {"form": form, "tracker": tracker})


tracker_delete = action_view(
    Permission.CONFIGURE, delete_tracker, Tracker, "tracker", then="tracker_list", success="{0} is deleted."
)


@allow(GET=Permission.READ, POST=Permission.EXPORT)
def collection_tracking(request: PageRequest, pk: int) -> HttpResponse:
    """Show the runs of a collection, and link it to another one. The page polls while runs are active."""
    collection = get_object_or_404(Collection.objects.present(), pk=pk)
    form = TrackingForm(posted(request))
    if form.is_valid():
        with show_errors(form):
            run = track_collection(form.spec(collection), user=request.user)
            messages.success(request, f"Tracking started. Metrics appear in {run.tracker} within a minute.")
            return go(request, "dashboard:collection_tracking", pk)
    runs = list(_RUNS.filter(collection=collection))
    context = {
        "collection": collection,
        "form": form,
        "runs": runs,
        "is_active": any(run.state == TrackedRun.State.ACTIVE for run in runs),
        "has_files": any(run.url and not run.is_linked for run in runs),
        "has_trackers": Tracker.objects.exists(),
    }
    return answer(request, "tracking/collection.html", context, part="runs", status=422 if form.is_bound else 200)


def _page(run: TrackedRun) -> str:
    return reverse("dashboard:collection_tracking", args=[run.collection_id])


tracked_run_stop = action_view(
    Permission.EXPORT, stop_run, _RUNS, "run", page=_page, success="The run is stopped. The tracker keeps its points."
)
tracked_run_resend = action_view(
    Permission.EXPORT,
    resend_run,
    _RUNS,
    "run",
    page=_page,
    success="The run continues. Workers send its missing points.",
)
tracked_run_delete = action_view(
    Permission.EXPORT,
    delete_run,
    _RUNS,
    "run",
    page=_page,
    success="The link is deleted, with its local files. A run on a server or in Trackio is kept.",
)


@sensitive_post_parameters("token")
@sensitive_variables("form")
@never_cache
@allow(GET=Permission.EXPORT, POST=Permission.EXPORT)
def export_push(request: PageRequest, pk: int) -> HttpResponse:
    """Push an export to the Hugging Face Hub, and show its pushes. The page polls while one is pending."""
    export = get_object_or_404(Export.objects.select_related("collection"), pk=pk)
    form = PushForm(posted(request))
    if form.is_valid():
        with show_errors(form):
            push = queue_push(form.spec(export), user=request.user)
            messages.success(request, f"The push to {push.repository} is queued.")
            return go(request, "dashboard:export_push", pk)
    pushes = list(export.hub_pushes.all()[:50])
    context = {
        "export": export,
        "form": form,
        "pushes": pushes,
        "is_pending": any(push.state == HubPush.State.PENDING for push in pushes),
    }
    return answer(request, "tracking/push.html", context, part="pushes", status=422 if form.is_bound else 200)
