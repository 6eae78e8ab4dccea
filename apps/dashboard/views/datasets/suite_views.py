"""Suites: datasets that are collected and reported together."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view, list_view
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.suite_forms import SuiteForm, SuitePlanForm
from apps.dashboard.views.collections.matrix_views import show_rows
from apps.rollouts.metrics.model_matrix import MatrixSpec, build_matrix
from apps.rollouts.plans.suite_plans import plan_suite
from apps.tasks.models import Suite
from apps.tasks.suite_changes import delete_suite, save_suite

_SUITES = Suite.objects.with_datasets()
suite_list = list_view(_SUITES, "suites/list.html", part="rows", name="suites")


@allow(GET=Permission.READ)
def suite_detail(request: PageRequest, slug: str) -> HttpResponse:
    """Show the datasets, and the matrix of their newest collections by model."""
    suite = get_object_or_404(_SUITES, slug=slug)
    matrix = build_matrix(MatrixSpec(suite=suite.slug))
    context = {
        "suite": suite,
        "versions": [(dataset, dataset.latest_version()) for dataset in suite.datasets],
        "matrix": matrix,
        "rows": show_rows(matrix),
        "query": f"suite={suite.slug}",
        "has_mean": True,
    }
    return answer(request, "suites/detail.html", context, part="figures")


@allow(GET=Permission.COLLECT, POST=Permission.COLLECT)
def suite_edit(request: PageRequest, slug: str = "") -> HttpResponse:
    """Edit the suite, or create one."""
    suite = get_object_or_404(_SUITES, slug=slug) if slug else Suite()
    form = SuiteForm(posted(request), instance=suite)
    if form.is_valid():
        with show_errors(form):
            saved = save_suite(suite=form.instance, user=request.user)
            messages.success(request, f"The suite {saved.name} is saved.")
            return go(request, "dashboard:suite_detail", saved.slug)
    return answer_form(request, "suites/form.html", {"form": form, "suite": suite})


suite_delete = action_view(
    Permission.COLLECT, delete_suite, _SUITES, "suite", then="suite_list", success="The suite {0} is deleted."
)


@allow(GET=Permission.COLLECT, POST=Permission.COLLECT)
def suite_collect(request: PageRequest, slug: str) -> HttpResponse:
    """Plan a collection for each dataset of the suite."""
    suite = get_object_or_404(_SUITES, slug=slug)
    form = SuitePlanForm(posted(request))
    if form.is_valid():
        with show_errors(form):
            planned = plan_suite(suite=suite, options=form.cleaned_data, user=request.user, idempotency_key=form.key)
            messages.success(request, f"{len(planned)} collections of {suite.name} are planned.")
            return go(request, "dashboard:collection_list")
    return answer_form(request, "suites/collect.html", {"form": form, "suite": suite})
