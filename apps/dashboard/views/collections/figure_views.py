"""Figures of a collection, one part per view: results, breakdowns, tasks, and files."""

from urllib.parse import urlencode

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.vary import vary_on_headers

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.charts.intervals import draw_intervals
from apps.dashboard.chrome.page_answers import answer, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.overview.collection_results import read_results
from apps.dashboard.overview.server_metric_rows import list_server_metrics
from apps.dashboard.tables.breakdown_rows import lay_out_shares, name_attempts
from apps.dashboard.tables.csv_files import answer_csv
from apps.dashboard.tables.figure_files import FIGURES, Table, tabulate_points, tabulate_shares
from apps.gym.traces.cause_texts import SOURCES
from apps.rollouts.failures.failure_groups import FailureGroup, read_failures
from apps.rollouts.metrics.cached_figures import CachedFigures, fresh_figures, read_figures
from apps.rollouts.metrics.label_figures import break_down
from apps.rollouts.metrics.labels import FACETS, Facet
from apps.rollouts.metrics.page_figures import PageFigures, scatter_rewards
from apps.rollouts.metrics.task_profiles import BUCKETS, profile_tasks
from apps.rollouts.models import Collection
from apps.rollouts.search.filters.filter_grammar import Term, Text, write_term
from apps.tasks.models import Task

RETRIED = {Collection.State.RUNNING, Collection.State.PAUSED, Collection.State.COMPLETED}
_TASKS_A_PAGE = 50
_SOURCES = ("Verifier explanations", "Last tool errors", "Errors")
_LABELS: dict[Facet, str] = {"split": "Split", "tag": "Tag", "model_version": "Model version"}


def _collection(pk: int) -> Collection:
    rows = Collection.objects.present().select_related("dataset", "version__dataset", "policy_model", "environment")
    return get_object_or_404(rows, pk=pk)


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def collection_results(request: PageRequest, pk: int) -> HttpResponse:
    """Show the results. htmx gets the part of the collection page."""
    collection = _collection(pk)
    context = {
        "collection": collection,
        "results": read_results(collection, read_figures(collection, may_wait=True)),
        "may_retry": collection.state in RETRIED and user_may(request.user, Permission.COLLECT),
    }
    if wants_fragment(request):
        template = "_collection_results" if context["results"] else "_measuring"
        return render(request, f"collections/{template}.html", context | {"trigger": "every 2s"})
    return render(request, "collections/results.html", context)


@allow(GET=Permission.READ)
def collection_breakdown(request: PageRequest, pk: int) -> HttpResponse:
    """Show a breakdown, by split unless the URL names another facet."""
    collection, facet = _collection(pk), read_facet(request)
    context = {"collection": collection, **breakdown_context(facet, read_figures(collection, facet, may_wait=True))}
    return answer(request, "collections/breakdown.html", context, part="breakdown")


def breakdown_context(facet: Facet, kept: CachedFigures[PageFigures]) -> dict[str, object]:
    """Return the context of a breakdown. `is_measured` is False until this facet was measured."""
    figures = kept.figures
    breakdown = figures.breakdowns.get(facet) if figures else None
    context: dict[str, object] = {"facet": facet, "facets": _LABELS.items(), "label": _LABELS[facet]}
    if figures is None or breakdown is None:
        return context | {"is_measured": False}
    return context | {
        "is_measured": True,
        "as_of": figures.as_of,
        "left_out": breakdown.left_out,
        "attempts": name_attempts(breakdown.shares),
        "shares": lay_out_shares(breakdown.shares),
    }


@allow(GET=Permission.READ)
def collection_tasks(request: PageRequest, pk: int) -> HttpResponse:
    """List tasks with their share of solved attempts, optionally of one bucket."""
    collection = _collection(pk)
    bucket = next((each for each in BUCKETS if each == request.GET.get("bucket")), None)
    after = read_number(request.GET.get("after", "")) or 0
    profiles = profile_tasks(collection, after=after, limit=_TASKS_A_PAGE, bucket=bucket)
    bars = draw_intervals([(profile.mean_reward, None) for profile in profiles])
    context = {
        "collection": collection,
        "bucket": bucket,
        "buckets": BUCKETS,
        "profiles": list(zip(profiles, bars, strict=True)),
        "is_first": not after,
        "next_after": profiles[-1].task if len(profiles) == _TASKS_A_PAGE else None,
    }
    return answer(request, "collections/tasks.html", context, part="tasks")


@allow(GET=Permission.READ)
def collection_failures(request: PageRequest, pk: int) -> HttpResponse:
    """Show why rewards are low: unsolved rollouts by cause, most frequent cause first."""
    collection = _collection(pk)
    source = next((each for each in SOURCES if each == request.GET.get("by")), None)
    offset = min(read_number(request.GET.get("offset", "")) or 0, collection.total)
    found = read_failures(collection, source, offset=offset)
    sources = [(name, label, found.by_source[name]) for name, label in zip(SOURCES, _SOURCES, strict=True)]
    groups = [(group, [(each, _query(collection, group, each.label)) for each in group.tags]) for group in found.groups]
    context = {
        "collection": collection,
        "failures": found,
        "groups": groups,
        "prompts": _read_prompts(found.groups),
        "sources": sources,
        "offset": offset,
    }
    return answer(request, "collections/failures.html", context, part="failures")


def _read_prompts(groups: list[FailureGroup]) -> dict[int, str]:
    """Return the start of the prompt by task, for the examples of the groups."""
    tasks = {example.task for group in groups for example in group.examples}
    return dict.fromkeys(tasks, "") | dict(
        Task.objects.filter(pk__in=tasks).order_by().values_list("pk", "prompt_excerpt")
    )


def _query(collection: Collection, group: FailureGroup, tag: str) -> str:
    """Return the query string of the rollouts of a group whose task has the tag."""
    return urlencode({"collection": collection.pk, "q": f"cause:{group.cause} {write_term(Term('tag', (Text(tag),)))}"})


@allow(GET=Permission.READ)
def collection_figure(request: PageRequest, pk: int, name: str) -> HttpResponse:
    """Download one figure as CSV."""
    collection = _collection(pk)
    table = _table(request, collection, name)
    return answer_csv(f"collection-{collection.pk}-{name}.csv", table.header, table.rows)


def _table(request: PageRequest, collection: Collection, name: str) -> Table:
    if name == "breakdown":
        return tabulate_shares(break_down(collection, read_facet(request)).shares)
    if name == "points":
        return tabulate_points(scatter_rewards(collection))
    if name == "server_metrics":
        return Table(("metric", "value", "key_metric"), list_server_metrics(collection))
    if name not in FIGURES:
        raise Http404(f"no such figure: {name}")
    return FIGURES[name](fresh_figures(collection).metrics)


def read_facet(request: PageRequest) -> Facet:
    return next((each for each in FACETS if each == request.GET.get("by")), "split")
