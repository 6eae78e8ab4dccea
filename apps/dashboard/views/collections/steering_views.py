"""Control a collection from its page: pause, resume, cancel, retry, change limits, archive, delete."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.number_formats import count_words
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted, show_refusal
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.collection_forms import LimitsForm
from apps.dashboard.forms.dataset_forms import DeleteForm
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.tables.rollouts.listing import RolloutList
from apps.dashboard.views.collections.collection_views import collection_detail
from apps.dashboard.views.rollouts.trace_part_views import find_rollout
from apps.gym.outcomes import ERROR_KINDS
from apps.rollouts.models import Collection, CollectionDeletion
from apps.rollouts.server_metrics.aggregate_requests import request_server_metrics
from apps.rollouts.steering.collection_deletion import queue_collection_deletion
from apps.rollouts.steering.controls import (
    adjust_collection,
    archive_collection,
    cancel_collection,
    pause_collection,
    resolve_flags,
    restore_collection,
    resume_collection,
    retry_failed,
)
from apps.rollouts.steering.rollout_deletion import queue_rollout_deletion
from apps.tasks.deletion_jobs import find_references

_PRESENT = Collection.objects.present()
_WHAT_RUNS = "Running rollouts stop within two seconds."


collection_pause = action_view(
    Permission.COLLECT,
    pause_collection,
    Collection,
    "collection",
    page="collection_detail",
    success="{0} is paused. Running rollouts finish, and no new ones start.",
)
collection_resume = action_view(
    Permission.COLLECT, resume_collection, Collection, "collection", page="collection_detail", success="{0} continues."
)


@allow(GET=Permission.READ, POST=Permission.COLLECT)
def collection_adjust(request: PageRequest, pk: int) -> HttpResponse:
    """Save the limits; with `resume` in the form, also resume the collection.

    An invalid form shows the collection's page at this URL; its filters and pages link to the GET URL.
    """
    if request.method != "POST":
        address = reverse("dashboard:collection_detail", args=[pk])
        return redirect(f"{address}?{request.GET.urlencode()}" if request.GET else address)
    collection = get_object_or_404(Collection, pk=pk)
    form = LimitsForm(request.POST)
    if form.is_valid():
        with show_errors(form):
            adjust_collection(collection=collection, changes=form.cleaned_data, user=request.user)
            if "resume" in request.POST:
                return collection_resume(request, pk=pk)
            messages.success(request, "Priority and limits saved.")
            return redirect("dashboard:collection_detail", pk=pk)
    return collection_detail(request, pk, limits_form=form, status=422)


collection_server_metrics = action_view(
    Permission.COLLECT,
    request_server_metrics,
    _PRESENT.select_related("environment"),
    "collection",
    page="collection_detail",
    success="Metrics of the resource server requested.",
)


@allow(POST=Permission.COLLECT)
def collection_retry(request: PageRequest, pk: int) -> HttpResponse:
    """Retry all failed rollouts, or those with the error kind in the form."""
    collection = get_object_or_404(Collection, pk=pk)
    kinds = [kind for kind in request.POST.getlist("error_kind") if kind in ERROR_KINDS]
    if request.POST.getlist("error_kind") and not kinds:
        messages.error(request, "Unknown error kind.")
        return redirect("dashboard:collection_detail", pk=pk)
    with show_refusal(request):
        queued = retry_failed(collection=collection, error_kinds=kinds, user=request.user)
        rollouts = count_words(queued, "failed rollout is", "failed rollouts are")
        waits = " They wait until the collection is resumed." if collection.state == Collection.State.PAUSED else ""
        said = f"{rollouts} queued again.{waits}" if queued else "No failures of this kind are left."
        messages.success(request, said)
    return redirect("dashboard:collection_detail", pk=pk)


@allow(POST=Permission.COLLECT)
def collection_cancel(request: PageRequest, pk: int) -> HttpResponse:
    collection = get_object_or_404(Collection, pk=pk)
    if collection.is_finished:
        messages.info(request, f"{collection} had already ended: it is {collection.get_state_display()}.")
        return redirect("dashboard:collection_detail", pk=pk)
    collection = cancel_collection(collection=collection, user=request.user)
    if collection.state == Collection.State.CANCELLED:
        messages.success(request, f"{collection} and its queued rollouts are cancelled. {_WHAT_RUNS}")
    else:
        messages.info(request, f"{collection} finished before it could be cancelled.")
    return redirect("dashboard:collection_detail", pk=pk)


collection_archive = action_view(
    Permission.COLLECT,
    archive_collection,
    _PRESENT,
    "collection",
    page="collection_detail",
    success="{0} is archived and hidden from lists.",
)
collection_restore = action_view(
    Permission.COLLECT,
    restore_collection,
    _PRESENT,
    "collection",
    page="collection_detail",
    success="{0} is restored to the lists.",
)


@allow(GET=Permission.COLLECT, POST=Permission.COLLECT)
def collection_delete(request: PageRequest, pk: int) -> HttpResponse:
    """Delete the collection after its number was typed."""
    collection = get_object_or_404(_PRESENT, pk=pk)
    form = DeleteForm(posted(request), wanted=f"#{collection.pk}")
    if form.is_valid():
        with show_errors(form):
            deletion = queue_collection_deletion(collection=collection, user=request.user)
            return go(request, "dashboard:collection_deletion_detail", deletion.pk)
    context = {"form": form, "collection": collection, "references": find_references(collection)}
    return answer_form(request, "collections/delete.html", context)


@allow(POST=Permission.COLLECT)
def rollout_delete(request: PageRequest, pk: int) -> HttpResponse:
    rollout = find_rollout(pk)
    return _delete_rollouts(request, rollout.collection, {"ids": [rollout.pk]})


@allow(POST=Permission.COLLECT)
def rollouts_delete(request: PageRequest, pk: int) -> HttpResponse:
    """Delete the rollouts that match the filter of the table."""
    there = RolloutList.read(request.POST)
    if not there.is_understood:
        messages.error(request, "Invalid filter. Nothing was deleted.")
        return redirect("dashboard:collection_detail", pk=pk)
    return _delete_rollouts(
        request, get_object_or_404(_PRESENT, pk=pk), {"q": str(there.parsed)} if there.parsed.terms else {}
    )


def _delete_rollouts(request: PageRequest, collection: Collection, chosen: dict[str, Any]) -> HttpResponse:
    with show_refusal(request):
        deletion = queue_rollout_deletion(collection=collection, chosen=chosen, user=request.user)
        return redirect("dashboard:collection_deletion_detail", pk=deletion.pk)
    return redirect("dashboard:collection_detail", pk=collection.pk)


@allow(GET=Permission.READ)
def collection_deletion_detail(request: PageRequest, pk: int) -> HttpResponse:
    deletion = get_object_or_404(CollectionDeletion.objects.select_related("created_by"), pk=pk)
    return answer(request, "collections/deletion.html", {"deletion": deletion}, part="live")


@allow(POST=Permission.EXPORT)
def collection_resolve_flags(request: PageRequest, pk: int) -> HttpResponse:
    resolved = resolve_flags(collection=get_object_or_404(_PRESENT, pk=pk), user=request.user)
    found = count_words(resolved, "rollout", "rollouts")
    messages.success(request, f"{found}: redactions marked as reviewed. Exports include these rollouts again.")
    return redirect("dashboard:collection_detail", pk=pk)
