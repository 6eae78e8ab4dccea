"""Control a collection from its page: pause, resume, cancel, retry, change limits."""

from typing import get_args

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import carry_out, tell_refusal
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.collection_forms import LimitsForm
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.views.collections.collection_views import collection_page
from apps.gym.errors import ErrorKind
from apps.rollouts.models import Collection
from apps.rollouts.steering.controls import (
    adjust_collection,
    cancel_collection,
    pause_collection,
    resume_collection,
    retry_failed,
)

_WHAT_RUNS = "Running rollouts stop within two seconds."


@allow(POST=Permission.COLLECT)
def collection_pause(request: PageRequest, pk: int) -> HttpResponse:
    collection, page = _collection(pk), reverse("dashboard:collection_detail", args=[pk])
    said = f"{collection} is paused. Running rollouts finish, and no new ones start."
    return carry_out(request, lambda: pause_collection(collection=collection, user=request.user), said=said, then=page)


@allow(POST=Permission.COLLECT)
def collection_resume(request: PageRequest, pk: int) -> HttpResponse:
    _resume(request, _collection(pk))
    return redirect("dashboard:collection_detail", pk=pk)


@allow(GET=Permission.READ, POST=Permission.COLLECT)
def collection_adjust(request: PageRequest, pk: int) -> HttpResponse:
    """Save the limits; with `resume` in the form, also resume the collection.

    An invalid form shows the collection's page at this URL; its filters and pages link to the GET URL.
    """
    if request.method != "POST":
        address = reverse("dashboard:collection_detail", args=[pk])
        return redirect(f"{address}?{request.GET.urlencode()}" if request.GET else address)
    collection = _collection(pk)
    form = LimitsForm(request.POST)
    if form.is_valid():
        with show_errors(form):
            collection = adjust_collection(collection=collection, changes=form.cleaned_data, user=request.user)
            if "resume" in request.POST:
                _resume(request, collection)
            else:
                messages.success(request, "Priority and limits saved.")
            return redirect("dashboard:collection_detail", pk=pk)
    return collection_page(request, pk, limits_form=form, status=422)


@allow(POST=Permission.COLLECT)
def collection_retry(request: PageRequest, pk: int) -> HttpResponse:
    """Retry all failed rollouts, or those with the error kind in the form."""
    collection = _collection(pk)
    kinds = [kind for kind in request.POST.getlist("error_kind") if kind in get_args(ErrorKind)]
    if request.POST.getlist("error_kind") and not kinds:
        messages.error(request, "Unknown error kind.")
        return redirect("dashboard:collection_detail", pk=pk)
    with tell_refusal(request):
        queued = retry_failed(collection=collection, error_kinds=kinds, user=request.user)
        rollouts = "1 failed rollout is" if queued == 1 else f"{queued:,} failed rollouts are"
        waits = " They wait until the collection is resumed." if collection.state == Collection.State.PAUSED else ""
        said = f"{rollouts} queued again.{waits}" if queued else "There are no such failures any more."
        messages.success(request, said)
    return redirect("dashboard:collection_detail", pk=pk)


@allow(POST=Permission.COLLECT)
def collection_cancel(request: PageRequest, pk: int) -> HttpResponse:
    collection = _collection(pk)
    if collection.is_finished:
        messages.info(request, f"{collection} had already ended: it is {collection.get_state_display()}.")
        return redirect("dashboard:collection_detail", pk=pk)
    collection = cancel_collection(collection=collection, user=request.user)
    if collection.state == Collection.State.CANCELLED:
        messages.success(request, f"{collection} and its queued rollouts are cancelled. {_WHAT_RUNS}")
    else:
        messages.info(request, f"{collection} finished before it could be cancelled.")
    return redirect("dashboard:collection_detail", pk=pk)


def _resume(request: PageRequest, collection: Collection) -> None:
    with tell_refusal(request):
        resume_collection(collection=collection, user=request.user)
        messages.success(request, f"{collection} continues.")


def _collection(pk: int) -> Collection:
    return get_object_or_404(Collection, pk=pk)
