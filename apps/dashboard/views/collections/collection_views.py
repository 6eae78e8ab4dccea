"""Collections: plan, progress and results."""

from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from apps.accounts.permissions import Permission, allow, user_may
from apps.agents.models import Agent
from apps.dashboard.chrome.page_answers import answer
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.forms.collection_forms import CollectionForm, LimitsForm
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.overview.agent_snippets import Snippet, write_snippets
from apps.dashboard.overview.collection_progress import read_progress
from apps.dashboard.overview.collection_results import read_results
from apps.dashboard.overview.overview_rows import with_previous
from apps.dashboard.tables.list_tables import (
    CollectionListForm,
    Column,
    head_columns,
    page_of_collections,
    read_ordering,
)
from apps.dashboard.tables.rollouts.facets import read_facets
from apps.dashboard.tables.rollouts.listing import OLDEST, RolloutList
from apps.dashboard.tables.rollouts.showing import show_table
from apps.dashboard.views.collections.figure_views import RETRIED, breakdown_context, read_facet
from apps.exports.rechecks.stale_outputs import collections_to_recheck
from apps.rollouts.metrics.cached_figures import is_measured_on_request, read_figures
from apps.rollouts.metrics.consistent_reads import consistent_reads
from apps.rollouts.models import Collection, CollectionQuerySet, Rollout
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.search.filters.query_time_limit import FilterTooSlow, limit_query_time


def _collections() -> CollectionQuerySet:
    return Collection.objects.present().select_related(
        "dataset", "version__dataset", "agent", "policy_model", "created_by"
    )


_COLUMNS = [
    Column("Collection", "id"),
    Column("State"),
    Column("Progress", "total"),
    Column("Mean reward", "mean_reward", "num"),
    Column("vs previous", classes="num lesser"),
    Column("Model and dataset", classes="lesser telling"),
    Column("Cost", "cost", "num lesser"),
    Column("Created", classes="lesser"),
]


@allow(GET=Permission.READ)
def collection_list(request: PageRequest) -> HttpResponse:
    """List collections by the filters and the order in the URL; archived ones only with `?archived=`."""
    filters = CollectionListForm(request.GET)
    ordering = read_ordering(request, _COLUMNS, "-id")
    page = page_of_collections(_collections(), filters, ordering, request.GET.get("after", ""))
    rows = with_previous(page.rows)
    columns = head_columns(request, _COLUMNS, ordering)
    # With archived collections alone, the filters are the way to them.
    has_filters = bool(rows) or filters.is_narrowed or Collection.objects.present().exists()
    context = {"page": page, "rows": rows, "filters": filters, "headings": columns, "has_filters": has_filters}
    return answer(request, "collections/list.html", context, part="collections")


@allow(GET=Permission.COLLECT, POST=Permission.COLLECT)
def collection_create(request: PageRequest) -> HttpResponse:
    """Plan a collection. GET with fields in the URL counts its rollouts; POST plans them.

    The count button uses POST, because a GET form would put its CSRF token into the URL.
    """
    if "count" in request.POST:
        return redirect(f"{request.path}?{urlencode(CollectionForm.known(request.POST))}")
    if request.method == "POST":
        form = CollectionForm(request.POST)
        if form.is_valid():
            with show_errors(form):
                collection = plan_collection(form.order, user=request.user, idempotency_key=form.key)
                return redirect("dashboard:collection_detail", pk=collection.pk)
        return render(request, "collections/create.html", {"form": form, "plan": form.plan()}, status=422)
    earlier, rest = _earlier(request)
    form = CollectionForm.opened_with(request.GET, earlier, rest=rest)
    return answer(request, "collections/create.html", {"form": form, "plan": form.plan()}, part="plan")


def _earlier(request: PageRequest) -> tuple[Collection | None, bool]:
    """Return the collection of `?clone=` or `?rest=`, and whether only its unfinished rollouts are planned."""
    for name in ("clone", "rest"):
        if (number := read_number(request.GET.get(name, ""))) is not None:
            return get_object_or_404(_collections(), pk=number), name == "rest"
    return None, False


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request", "HX-Target")
def collection_detail(
    request: PageRequest, pk: int, *, limits_form: LimitsForm | None = None, status: int = 200
) -> HttpResponse:
    """Show the collection. `limits_form` is an invalid submitted form.

    htmx gets the part named by its target: the table of rollouts, all figures (`collection-figures`), or both
    (`collection-live`).
    """
    collection = get_object_or_404(_collections().select_related("environment", "resume_from"), pk=pk)
    target = request.htmx.target
    if target == "rollout-table":
        with consistent_reads():
            context = _table(request, collection, timezone.now())
        return render(request, "collections/detail.html#rollouts", context)
    is_live = target in {"collection-figures", "collection-live"}
    context = _read_page(request, collection, with_table=target != "collection-figures", may_wait=is_live)
    if is_live:
        return render(request, "collections/_collection_live.html", context)
    context |= {
        "flagged": Rollout.objects.filter(collection=collection, flagged=True).count(),
        "reverifications": collection.reverifications.all()[:5],
        "needs_recheck": collections_to_recheck().filter(pk=collection.pk).exists(),
        "tracked_runs": collection.tracked_runs.select_related("tracker"),
        "previous": _previous(collection),
        "snippets": _snippets(request, collection),
        "limits_form": limits_form or LimitsForm.of(collection),
    }
    return render(request, "collections/detail.html", context, status=status)


def _snippets(request: PageRequest, collection: Collection) -> list[Snippet]:
    """Return the code that connects an agent, if the collection waits for an external one."""
    if collection.agent.kind != Agent.Kind.EXTERNAL or collection.is_finished:
        return []
    return write_snippets(f"{request.scheme}://{request.get_host()}", collection.pk)


def _read_page(request: PageRequest, collection: Collection, *, with_table: bool, may_wait: bool) -> dict[str, Any]:
    """Return the figures of the page and its table. For small collections, all figures are from the same moment."""
    if is_measured_on_request(collection):
        with consistent_reads():
            context = _figures(request, collection, may_wait=may_wait)
            return context | (_table(request, collection, context["progress"].as_of) if with_table else {})
    # Figures of a large collection take seconds. The page shows the cached figures first, then updates them.
    context = _figures(request, collection, may_wait=may_wait)
    return context | (_table(request, collection, timezone.now()) if with_table else {})


def _figures(request: PageRequest, collection: Collection, *, may_wait: bool) -> dict[str, Any]:
    facet = read_facet(request)
    kept = read_figures(collection, facet, may_wait=may_wait)
    return {
        "collection": collection,
        "may_retry": collection.state in RETRIED and user_may(request.user, Permission.COLLECT),
        "progress": read_progress(collection, kept),
        "results": read_results(collection, kept),
        **breakdown_context(facet, kept),
    }


def _table(request: PageRequest, collection: Collection, as_of: datetime) -> dict[str, Any]:
    """Return the context of the table of rollouts, with facet counts if they are fast."""
    there = RolloutList.read(request.GET, sort=OLDEST)
    rollouts = Rollout.objects.of_collection(collection.pk)
    context = {
        "collection": collection,
        **show_table(request.GET, rollouts, request.user, there, collection=collection),
    }
    counted = None
    if is_measured_on_request(collection) and there.is_understood and not context["too_slow"]:
        with suppress(FilterTooSlow), limit_query_time(there.parsed):
            counted = read_facets(there, Rollout.objects.of_collection(collection.pk))
    return context | {"counted": counted, "back": request.path, "table_as_of": as_of}


def _previous(collection: Collection) -> Collection | None:
    """Return the previous collection of the same dataset, the default for a comparison."""
    rows = Collection.objects.listed().filter(dataset=collection.dataset_id, pk__lt=collection.pk, rewarded__gt=0)
    return rows.order_by("-pk").only("pk", "name").first()
