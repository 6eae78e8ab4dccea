"""Finished collections: archive, restore, and delete all or some rollouts."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted, tell_refusal
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.dataset_forms import DeleteForm
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.tables.rollouts.listing import RolloutList
from apps.dashboard.views.rollouts.trace_part_views import find_rollout
from apps.rollouts.models import Collection, CollectionDeletion
from apps.rollouts.steering.collection_deletion import queue_collection_deletion
from apps.rollouts.steering.controls import archive_collection, restore_collection
from apps.rollouts.steering.rollout_deletion import queue_rollout_deletion
from apps.tasks.deletion_jobs import find_references


def _collection(pk: int) -> Collection:
    return get_object_or_404(Collection.objects.present(), pk=pk)


@allow(POST=Permission.COLLECT)
def collection_archive(request: PageRequest, pk: int) -> HttpResponse:
    with tell_refusal(request):
        collection = archive_collection(collection=_collection(pk), user=request.user)
        messages.success(request, f"{collection} is archived and hidden from lists.")
    return redirect("dashboard:collection_detail", pk=pk)


@allow(POST=Permission.COLLECT)
def collection_restore(request: PageRequest, pk: int) -> HttpResponse:
    collection = restore_collection(collection=_collection(pk), user=request.user)
    messages.success(request, f"{collection} is restored to the lists.")
    return redirect("dashboard:collection_detail", pk=pk)


@allow(GET=Permission.COLLECT, POST=Permission.COLLECT)
def collection_delete(request: PageRequest, pk: int) -> HttpResponse:
    """Delete the collection after its number was typed."""
    collection = _collection(pk)
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
    return _delete_rollouts(request, _collection(pk), {"q": str(there.parsed)} if there.parsed.terms else {})


def _delete_rollouts(request: PageRequest, collection: Collection, chosen: dict[str, Any]) -> HttpResponse:
    with tell_refusal(request):
        deletion = queue_rollout_deletion(collection=collection, chosen=chosen, user=request.user)
        return redirect("dashboard:collection_deletion_detail", pk=deletion.pk)
    return redirect("dashboard:collection_detail", pk=collection.pk)


@allow(GET=Permission.READ)
def collection_deletion_detail(request: PageRequest, pk: int) -> HttpResponse:
    deletion = get_object_or_404(CollectionDeletion.objects.select_related("created_by"), pk=pk)
    return answer(request, "collections/deletion.html", {"deletion": deletion}, part="live")
