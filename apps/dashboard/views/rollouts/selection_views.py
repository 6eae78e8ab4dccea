"""Actions on the rollouts selected in a table: compare, export, re-verify, resolve flags, delete."""

from collections import Counter
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.number_formats import count_words
from apps.dashboard.chrome.page_answers import show_refusal
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.views.rollouts.rollout_table_views import back_of, go_back
from apps.gym.request_refusals import Refusal
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.reverification.reverification_jobs import queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from apps.rollouts.steering.controls import resolve_flag
from apps.rollouts.steering.rollout_deletion import MAX_IDS, queue_rollout_deletion


class SelectionRefused(Refusal):
    """Raised if the selected rollouts do not belong to one collection."""


@allow(POST=Permission.READ)
def selected_compare(request: PageRequest) -> HttpResponse:
    """Compare the selected rollouts. The page shows why some cannot be compared."""
    chosen = ",".join(str(pk) for pk in _marked(request))
    return redirect(f"{reverse('dashboard:rollout_compare')}?r={chosen}")


@allow(POST=Permission.LEAD)
def selected_queue(request: PageRequest) -> HttpResponse:
    """Open the form of a new queue with the selected rollouts; a compared group also presets the kind of review."""
    chosen = {"rollouts": " ".join(str(pk) for pk in _marked(request))}
    chosen |= {name: request.POST[name] for name in ("kind", "per_task", "size") if request.POST.get(name)}
    return redirect(f"{reverse('dashboard:queue_create')}?{urlencode(chosen)}")


@allow(POST=Permission.EXPORT)
def selected_export(request: PageRequest) -> HttpResponse:
    """List the formats for an export of the selected rollouts."""
    with show_refusal(request):
        collection, ids = _one_collection(request)
        chosen = {"collection": collection.pk, "rollouts": " ".join(map(str, ids))}
        return redirect(f"{reverse('dashboard:export_create')}?{urlencode(chosen)}")
    return go_back(request)


@allow(POST=Permission.COLLECT)
def selected_verify_again(request: PageRequest) -> HttpResponse:
    with show_refusal(request):
        collection, ids = _one_collection(request)
        order = ReverificationOrder(collection=collection, filters={"ids": ids})
        return redirect("dashboard:reverification_detail", pk=queue_reverification(order, user=request.user).pk)
    return go_back(request)


@allow(POST=Permission.COLLECT)
def selected_delete(request: PageRequest) -> HttpResponse:
    """Confirm the deletion of the selected rollouts on a page of its own."""
    with show_refusal(request):
        collection, ids = _one_collection(request)
        if "confirmed" in request.POST:
            deletion = queue_rollout_deletion(collection=collection, chosen={"ids": ids}, user=request.user)
            return redirect("dashboard:collection_deletion_detail", pk=deletion.pk)
        there = Rollout.objects.filter(pk__in=ids, collection=collection).order_by("pk").values_list("pk", flat=True)
        context = {"collection": collection, "ids": list(there), "back": back_of(request)}
        return render(request, "rollouts/delete_marked.html", context)
    return go_back(request)


@allow(POST=Permission.EXPORT)
def selected_resolve_flags(request: PageRequest) -> HttpResponse:
    flagged = list(Rollout.objects.filter(pk__in=_marked(request), flagged=True))
    for rollout in flagged:
        resolve_flag(rollout=rollout, user=request.user)
    messages.success(request, f"{count_words(len(flagged), 'rollout', 'rollouts')}: redactions marked as reviewed.")
    return go_back(request)


def _marked(request: PageRequest) -> list[int]:
    return [pk for pk in map(read_number, request.POST.getlist("r")[:MAX_IDS]) if pk is not None]


def _one_collection(request: PageRequest) -> tuple[Collection, list[int]]:
    """Return the collection of all selected rollouts, and their ids. Raise SelectionRefused unless there is one."""
    ids = _marked(request)
    found = Counter(Rollout.objects.filter(pk__in=ids).values_list("collection_id", flat=True))
    if len(found) != 1:
        several = f"These rollouts are of {len(found)} collections: select rollouts of one collection."
        raise SelectionRefused(several if found else "Select rollouts first.")
    return get_object_or_404(Collection.objects.present().select_related("environment"), pk__in=found), ids
