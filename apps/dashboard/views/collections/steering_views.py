"""Steering a collection from its page: pause, resume, cancel, retry, change its limits."""

from typing import get_args

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import tell_refusal
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.collection_forms import LimitsForm
from apps.dashboard.forms.fields import add_errors
from apps.dashboard.views.collections.collection_views import collection_page
from apps.gym.errors import ErrorKind
from apps.rollouts.models import Collection
from apps.rollouts.steering.controls import (
    CannotSteer,
    adjust_collection,
    cancel_collection,
    pause_collection,
    resume_collection,
    retry_failed,
)

_WHAT_RUNS = "What runs is dropped within two seconds, or finishes if it is about to."


@allow(POST=Permission.COLLECT)
def collection_pause(request: PageRequest, pk: int) -> HttpResponse:
    with tell_refusal(request):
        collection = pause_collection(collection=_collection(pk), user=request.user)
        messages.success(request, f"{collection} is paused. What runs goes on to its end; nothing more is started.")
    return redirect("dashboard:collection_detail", pk=pk)


@allow(POST=Permission.COLLECT)
def collection_resume(request: PageRequest, pk: int) -> HttpResponse:
    _resume(request, _collection(pk))
    return redirect("dashboard:collection_detail", pk=pk)


@allow(GET=Permission.READ, POST=Permission.COLLECT)
def collection_adjust(request: PageRequest, pk: int) -> HttpResponse:
    """Save the limits; with `resume` in the form, go on under them at once.

    A form that is wrong comes back on the collection's page under this address; its filters and pages lead to GET.
    """
    if request.method != "POST":
        address = reverse("dashboard:collection_detail", args=[pk])
        return redirect(f"{address}?{request.GET.urlencode()}" if request.GET else address)
    collection = _collection(pk)
    form = LimitsForm(request.POST)
    if form.is_valid():
        try:
            collection = adjust_collection(collection=collection, changes=form.cleaned_data, user=request.user)
        except (CannotSteer, ValidationError) as wrong:
            add_errors(form, wrong)
        else:
            if "resume" in request.POST:
                _resume(request, collection)
            else:
                messages.success(request, "The priority and limits are saved; workers keep to them from now on.")
            return redirect("dashboard:collection_detail", pk=pk)
    return collection_page(request, pk, limits_form=form, status=422)


@allow(POST=Permission.COLLECT)
def collection_retry(request: PageRequest, pk: int) -> HttpResponse:
    """All that failed, or what failed with the kind that the form names."""
    collection = _collection(pk)
    kinds = [kind for kind in request.POST.getlist("error_kind") if kind in get_args(ErrorKind)]
    if request.POST.getlist("error_kind") and not kinds:
        messages.error(request, "There is no such error kind.")
        return redirect("dashboard:collection_detail", pk=pk)
    with tell_refusal(request):
        queued = retry_failed(collection=collection, error_kinds=kinds, user=request.user)
        rollouts = "1 failed rollout is" if queued == 1 else f"{queued:,} failed rollouts are"
        waits = " They wait until the collection is resumed." if collection.state == Collection.State.PAUSED else ""
        said = f"{rollouts} queued again.{waits}" if queued else "Nothing of that has failed by now."
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
        messages.success(request, f"{collection} is cancelled, and so is what was queued. {_WHAT_RUNS}")
    else:
        messages.info(request, f"{collection} ended before it could be cancelled.")
    return redirect("dashboard:collection_detail", pk=pk)


def _resume(request: PageRequest, collection: Collection) -> None:
    with tell_refusal(request):
        resume_collection(collection=collection, user=request.user)
        messages.success(request, f"{collection} goes on.")


def _collection(pk: int) -> Collection:
    return get_object_or_404(Collection, pk=pk)
