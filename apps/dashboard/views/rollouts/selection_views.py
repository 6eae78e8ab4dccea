"""What is done with the rollouts that are marked in a table: compared, exported, verified again, looked at, deleted."""

from collections import Counter
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import tell_refusal
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.views.rollouts.rollout_table_views import back_of, go_back
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.reverification.reverification_jobs import queue_reverification
from apps.rollouts.steering.flag_resolution import resolve_flag
from apps.rollouts.steering.rollout_deletion import MAX_IDS, queue_rollout_deletion

_NONE = "Mark some rollouts first."


@allow(POST=Permission.READ)
def selected_compare(request: PageRequest) -> HttpResponse:
    """Its page says what cannot be compared."""
    chosen = ",".join(str(pk) for pk in _marked(request))
    return redirect(f"{reverse('dashboard:rollout_compare')}?r={chosen}")


@allow(POST=Permission.LEAD)
def selected_queue(request: PageRequest) -> HttpResponse:
    """The form of a new queue, with them in it; a group that is compared says how they are to be judged, too."""
    chosen = {"rollouts": " ".join(str(pk) for pk in _marked(request))}
    chosen |= {name: request.POST[name] for name in ("kind", "per_task", "size") if request.POST.get(name)}
    return redirect(f"{reverse('dashboard:queue_create')}?{urlencode(chosen)}")


@allow(POST=Permission.EXPORT)
def selected_export(request: PageRequest) -> HttpResponse:
    """The formats of a new export, with them in its form."""
    collection = _their_collection(request)
    if collection is None:
        return go_back(request)
    chosen = {"collection": collection.pk, "rollouts": " ".join(str(pk) for pk in _marked(request))}
    return redirect(f"{reverse('dashboard:export_create')}?{urlencode(chosen)}")


@allow(POST=Permission.COLLECT)
def selected_verify_again(request: PageRequest) -> HttpResponse:
    ids, collection = _marked(request), _their_collection(request)
    if collection is None:
        return go_back(request)
    with tell_refusal(request):
        reverification = queue_reverification(collection=collection, filters={"ids": ids}, user=request.user)
        return redirect("dashboard:reverification_detail", pk=reverification.pk)
    return go_back(request)


@allow(POST=Permission.COLLECT)
def selected_delete(request: PageRequest) -> HttpResponse:
    """Asks first, on a page of its own, so that nothing is deleted by one press."""
    ids, collection = _marked(request), _their_collection(request)
    if collection is None:
        return go_back(request)
    if "confirmed" not in request.POST:
        there = Rollout.objects.filter(pk__in=ids, collection=collection).order_by("pk").values_list("pk", flat=True)
        context = {"collection": collection, "ids": list(there), "back": back_of(request)}
        return render(request, "rollouts/delete_marked.html", context)
    with tell_refusal(request):
        deletion = queue_rollout_deletion(collection=collection, chosen={"ids": ids}, user=request.user)
        return redirect("dashboard:collection_deletion_detail", pk=deletion.pk)
    return go_back(request)


@allow(POST=Permission.EXPORT)
def selected_resolve_flags(request: PageRequest) -> HttpResponse:
    flagged = list(Rollout.objects.filter(pk__in=_marked(request), flagged=True))
    for rollout in flagged:
        resolve_flag(rollout=rollout, user=request.user)
    one = len(flagged) == 1
    messages.success(request, f"{'1 flag is' if one else f'{len(flagged)} flags are'} resolved.")
    return go_back(request)


def _marked(request: PageRequest) -> list[int]:
    given = request.POST.getlist("r")[:MAX_IDS]
    return [int(text) for text in given if text.isascii() and text.isdigit() and len(text) < 19]


def _their_collection(request: PageRequest) -> Collection | None:
    """The one that all marked rollouts are of; None, and a message, where there is none."""
    found = Counter(Rollout.objects.filter(pk__in=_marked(request)).values_list("collection_id", flat=True))
    if len(found) == 1:
        return Collection.objects.present().select_related("environment").filter(pk__in=found).first()
    several = f"These rollouts are of {len(found)} collections: mark such of one, since each is done by itself."
    messages.error(request, several if found else _NONE)
    return None
