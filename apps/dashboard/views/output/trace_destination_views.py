"""Trace destinations, and sends of exported traces to them."""

from django.contrib import messages
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer_form, carry_out, go, posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.trace_forms import TraceDestinationForm, TraceSendForm
from apps.exports.models import Export, TraceDestination, TraceSend
from apps.exports.trace_sends.destination_changes import delete_destination, save_destination
from apps.exports.trace_sends.send_orders import (
    TraceSendOrder,
    cancel_trace_send,
    queue_trace_send,
    resume_trace_send,
)


@allow(GET=Permission.CONFIGURE)
def trace_list(request: PageRequest) -> HttpResponse:
    destinations = TraceDestination.objects.annotate(number=Count("sends"))
    return render(request, "traces/list.html", {"destinations": destinations})


@sensitive_post_parameters("url", "headers")
@sensitive_variables("form")
@never_cache
@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def trace_edit(request: PageRequest, pk: int | None = None) -> HttpResponse:
    """Edit the destination, or create one."""
    destination = get_object_or_404(TraceDestination, pk=pk) if pk else TraceDestination()
    form = TraceDestinationForm(posted(request), instance=destination)
    if form.is_valid():
        with show_errors(form):
            saved = save_destination(destination=form.instance, user=request.user, **form.url_and_headers)
            messages.success(request, f"The trace destination {saved.name} is saved.")
            return go(request, "dashboard:trace_list")
    return answer_form(request, "traces/form.html", {"form": form, "destination": destination})


trace_delete = action_view(
    Permission.CONFIGURE,
    delete_destination,
    TraceDestination,
    "destination",
    then="trace_list",
    success="{0} is deleted.",
)


@allow(POST=Permission.EXPORT)
def trace_send_create(request: PageRequest, pk: int) -> HttpResponse:
    """Send the traces of an export. A refusal is shown on the page of the export."""
    export = get_object_or_404(Export, pk=pk)
    page = reverse("dashboard:export_detail", args=[pk])
    form = TraceSendForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Choose a destination.")
        return redirect(page)
    order = TraceSendOrder(export=export, destination=form.cleaned_data["destination"])
    return carry_out(request, lambda: queue_trace_send(order, user=request.user), then=page)


def _page_of(send: TraceSend) -> str:
    return reverse("dashboard:export_detail", args=[send.export_id])


_SENDS = TraceSend.objects.select_related("destination")
trace_send_cancel = action_view(Permission.EXPORT, cancel_trace_send, _SENDS, "send", page=_page_of)
trace_send_resume = action_view(Permission.EXPORT, resume_trace_send, _SENDS, "send", page=_page_of)
