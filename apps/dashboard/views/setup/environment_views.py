"""Environments: tools, state and verifier."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.environment_forms import EnvironmentForm
from apps.dashboard.forms.fields import add_errors
from apps.dashboard.forms.verifier_forms import CHOOSE, VerifierForm, typed
from apps.dashboard.overview.endpoint_cards import (
    answer_breaker,
    answer_health,
    breaker_context,
    can_check,
    targets_breaker,
)
from apps.dashboard.overview.environment_tools import list_tools
from apps.dashboard.tables.list_tables import Column, EnvironmentListForm, list_rows
from apps.dashboard.traces.bodies import pretty
from apps.environments.environment_changes import save_environment
from apps.environments.environment_health import probe_environment
from apps.environments.models import Environment
from apps.environments.verifier_cases import find_cases
from apps.gym.judging.prompts import DEFAULT_RUBRICS
from apps.gym.judging.scale import read_settings
from apps.gym.verifiers.registry import VERIFIERS
from apps.gym.written.registry import find_environment

_SHOWN_COLLECTIONS = 10
_NO_VERIFIER = "Verifier from the server or the task row"


_COLUMNS = [
    Column("Environment", "name"),
    Column("Server"),
    Column("Verifier", classes="lesser"),
    Column("Health"),
    Column("Datasets", "datasets", "num"),
    Column("Collections", "collections", "num"),
    Column("Latest mean reward", "reward", "num"),
    Column("Trend", classes="lesser"),
]
_KEYS: dict[str, Any] = {"datasets": lambda environment: environment.dataset_count}


@allow(GET=Permission.READ)
def environment_list(request: PageRequest) -> HttpResponse:
    rows = Environment.objects.select_related("breaker").annotate(
        dataset_count=Count("datasets", distinct=True), collection_count=Count("collections", distinct=True)
    )
    context = list_rows(request, rows, EnvironmentListForm(request.GET), _COLUMNS, _KEYS, owner="environment")
    return answer(request, "environments/list.html", context, part="rows")


@allow(GET=Permission.READ)
def environment_detail(request: HttpRequest, slug: str) -> HttpResponse:
    environment = get_object_or_404(Environment.objects.select_related("judge_model"), slug=slug)
    if targets_breaker(request):
        return answer_breaker(request, environment)
    if request.headers.get("HX-Target") == "health":
        may_check = user_may(request.user, Permission.CONFIGURE)
        return answer_health(request, environment, "environment", may_check=may_check)
    builtin = find_environment(environment.builtin)
    judge = read_settings(environment.judge_settings) if environment.judge_model else None
    context = {
        **breaker_context(environment),
        "environment": environment,
        "tools": list_tools(environment),
        "does": builtin.description if builtin else "",
        "judge": judge,
        "verifier": VERIFIERS[environment.verifier["type"]].title if environment.verifier else "",
        "parameters": pretty({name: value for name, value in environment.verifier.items() if name != "type"}),
        "default_rubric": DEFAULT_RUBRICS[judge.question] if judge else "",
        "case_count": len(find_cases(environment)),
        "datasets": environment.datasets.all(),
        "collections": environment.collections.select_related("dataset", "policy_model")[:_SHOWN_COLLECTIONS],
    }
    return answer(request, "environments/detail.html", context, part="facts")


@sensitive_post_parameters("api_key")
@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def environment_edit(request: HttpRequest, slug: str = "") -> HttpResponse:
    """Edit the environment, or create one."""
    environment = get_object_or_404(Environment, slug=slug) if slug else Environment()
    form = EnvironmentForm(posted(request), instance=environment)
    verifier = VerifierForm(posted(request), given=environment.verifier, none=_NO_VERIFIER)
    if CHOOSE in request.POST:
        kept = typed(form)
        form = EnvironmentForm(instance=environment)
        form.initial.update(kept)
        verifier = VerifierForm(given={"type": verifier.kind}, none=_NO_VERIFIER)
    elif form.is_valid() and verifier.is_valid():
        form.instance.verifier = verifier.configuration()
        try:
            saved = save_environment(environment=form.instance, api_key=form.given_key(), user=request.user)
        except ValidationError as wrong:
            verifier.add_problems(wrong)
            add_errors(form, wrong, skip={"verifier"})
        else:
            messages.success(
                request, f"The environment {saved.name} is saved.{' Run a health check.' if can_check(saved) else ''}"
            )
            return go(request, "dashboard:environment_detail", saved.slug)
    context = {"form": form, "verifier": verifier, "environment": environment}
    return answer_form(request, "environments/form.html", context)


@allow(POST=Permission.CONFIGURE)
def environment_check(request: HttpRequest, slug: str) -> HttpResponse:
    checked = probe_environment(environment=get_object_or_404(Environment, slug=slug))
    return answer_health(request, checked, "environment")
