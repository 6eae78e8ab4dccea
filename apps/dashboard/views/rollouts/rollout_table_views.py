"""The table of rollouts: list, facets, preview, and display settings."""

from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.vary import vary_on_headers

from apps.accounts.models import SavedView
from apps.accounts.permissions import Permission, allow
from apps.accounts.table_preferences import arrange_table, delete_view, save_view
from apps.dashboard.chrome.page_answers import answer, carry_out, show_refusal, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.tables.rollouts.columns import DENSITIES, TABLE, known_columns
from apps.dashboard.tables.rollouts.facets import read_facets
from apps.dashboard.tables.rollouts.listing import RolloutList
from apps.dashboard.tables.rollouts.showing import show_table
from apps.dashboard.traces.trace_reading import find_next, open_chunk, open_trace
from apps.dashboard.views.rollouts.trace_part_views import attempt_context, find_rollout, or_404, read_place
from apps.policies.redacted_fields import redact_input
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, limit_query_time


@allow(GET=Permission.READ)
def rollout_list(request: PageRequest) -> HttpResponse:
    context = show_table(request.GET, Rollout.objects.all(), request.user, RolloutList.read(request.GET))
    return answer(request, "rollouts/list.html", context, part="rollouts")


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_facets(request: PageRequest) -> HttpResponse:
    """Return counts over the matches of the filter. `?of=` is the collection of the page."""
    number = request.GET.get("of", "")
    rollouts, there, back = Rollout.objects.all(), RolloutList.read(request.GET), reverse("dashboard:rollout_list")
    if number:
        collection = get_object_or_404(Collection.objects.present(), pk=read_number(number))
        rollouts = rollouts.of_collection(collection.pk)
        back = reverse("dashboard:collection_detail", args=[collection.pk])
    counted, too_slow = None, ""
    try:
        with limit_query_time(there.parsed):
            counted = read_facets(there, rollouts)
    except FilterTooSlow as slow:
        too_slow = str(slow)
    context = {"counted": counted, "too_slow": too_slow, "there": there, "back": back, "of": number}
    name = "rollouts/_facets.html" if wants_fragment(request) else "rollouts/facets.html"
    return render(request, name, context)


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_peek(request: PageRequest, pk: int) -> HttpResponse:
    """Show the beginning of a trace beside the table, or the part with event `from`.

    Without htmx, show the page of the rollout.
    """
    if not wants_fragment(request):
        return redirect("dashboard:rollout_detail", pk=pk)
    rollout = find_rollout(pk)
    context = {**attempt_context(request, rollout, rollout.attempt), "may_comment": False}
    first = read_place(request, "from")
    if first is not None:
        chunk = or_404(open_chunk(rollout, rollout.attempt, first), "no such event in this attempt")
        later = find_next(rollout, rollout.attempt, chunk)
        return render(request, "rollouts/_peek_more.html", {**context, "chunk": chunk, "next": later})
    opened = open_trace(rollout, rollout.attempt)
    context |= {"opened": opened, "next": opened.chunks[1].span.first if opened.is_large else None}
    return render(request, "rollouts/_peek.html", {**context, "list_query": request.GET.get("list", "")})


@allow(POST=Permission.VIEWS)
def rollout_columns(request: PageRequest) -> HttpResponse:
    """Save the columns and density for the user. No column restores the default ones."""
    density = request.POST.get("density", "")
    arrange_table(
        user=request.user,
        table=TABLE,
        columns=() if "usual" in request.POST else known_columns(request.POST.getlist("column")),
        density=density if density in DENSITIES else DENSITIES[0],
    )
    return go_back(request)


@allow(POST=Permission.VIEWS)
def rollout_view_save(request: PageRequest) -> HttpResponse:
    there = RolloutList.read(request.POST)
    if not there.is_understood:
        messages.error(request, "Invalid filter. The view was not saved.")
        return go_back(request)
    columns = known_columns(request.POST.get("columns", "").split(","))
    with show_refusal(request):
        view = save_view(
            user=request.user,
            table=TABLE,
            name=redact_input(request.POST.get("name", "")),
            query=redact_input(str(there.parsed)),
            sort=there.sort,
            columns=columns,
            is_shared=bool(request.POST.get("shared")),
            replace=bool(request.POST.get("replace")),
        )
        messages.success(request, f"The view “{view.name}” is saved{' for all users' if view.is_shared else ''}.")
        return redirect(f"{reverse('dashboard:rollout_list')}?{urlencode({'q': view.query, 'sort': view.sort})}")
    return go_back(request)


@allow(POST=Permission.VIEWS)
def rollout_view_delete(request: PageRequest, pk: int) -> HttpResponse:
    view = get_object_or_404(SavedView.objects.seen_by(request.user), pk=pk)
    success = f"The view “{view.name}” is deleted."
    return carry_out(request, lambda: delete_view(view=view, user=request.user), success=success, then=back_of(request))


def go_back(request: PageRequest) -> HttpResponse:
    """Redirect to the table that sent the form."""
    return redirect(back_of(request))


def back_of(request: PageRequest) -> str:
    """Return the URL of the table that sent the form."""
    to = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(to, allowed_hosts=None) or not to.startswith("/"):
        to = reverse("dashboard:rollout_list")
    return to
