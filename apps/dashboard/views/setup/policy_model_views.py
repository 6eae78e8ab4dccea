"""Policy models: the endpoints that attempt tasks."""

from typing import Any

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts.permissions import Permission, allow
from apps.dashboard.charts.versions_chart import draw_versions
from apps.dashboard.chrome.page_answers import answer, answer_form, carry_out, go, posted, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.fields import add_errors_to_valid_fields, show_errors
from apps.dashboard.forms.policy_model_forms import PolicyModelForm, VersionFilterForm
from apps.dashboard.forms.trial_forms import TryForm
from apps.dashboard.overview.endpoint_cards import answer_breaker, answer_health, breaker_context, targets_breaker
from apps.dashboard.overview.logprob_card import logprob_context
from apps.dashboard.tables.list_tables import Column, PolicyModelListForm, list_rows
from apps.dashboard.traces.card_building import show_events
from apps.policies.endpoint_health import probe_policy_model
from apps.policies.installation_redactor import show_extras
from apps.policies.model_trial import try_model
from apps.policies.models import Health, PolicyModel
from apps.policies.policy_model_changes import find_errors, save_policy_model
from apps.rollouts.logprob_checks import check_logprobs
from apps.rollouts.metrics.cached_figures import read_versions
from apps.rollouts.metrics.model_versions import track_versions

_SHOWN_COLLECTIONS = 10
_SHOWN_VERSIONS = 60


_COLUMNS = [
    Column("Model", "name"),
    Column("Endpoint"),
    Column("Health"),
    Column("Collections", "collections", "num"),
    Column("Latest mean reward", "reward", "num"),
    Column("Trend", classes="lesser"),
]
# A model is compared with itself alone.
_SAME = ("dataset", "agent", "policy_model")


@allow(GET=Permission.READ)
def model_list(request: PageRequest) -> HttpResponse:
    rows = PolicyModel.objects.select_related("breaker").annotate(collection_count=Count("collections"))
    filters = PolicyModelListForm(request.GET)
    context = list_rows(request, rows, filters, _COLUMNS, {}, owner="policy_model", same=_SAME)
    return answer(request, "models/list.html", context, part="rows")


@allow(GET=Permission.READ)
def model_detail(request: HttpRequest, slug: str) -> HttpResponse:
    policy_model = get_object_or_404(PolicyModel, slug=slug)
    if targets_breaker(request):
        return answer_breaker(request, policy_model)
    collections = policy_model.collections.select_related("dataset")[:_SHOWN_COLLECTIONS]
    context = {"policy_model": policy_model, "collections": collections, **breaker_context(policy_model)}
    context |= logprob_context(policy_model)
    context |= {name: show_extras(getattr(policy_model, name)) for name in ("extra_headers", "extra_body")}
    if not wants_fragment(request):
        context |= _versions(request, policy_model)
    return answer(request, "models/detail.html", context, part="facts")


def _versions(request: HttpRequest, policy_model: PolicyModel) -> dict[str, Any]:
    chosen = VersionFilterForm(request.GET, policy_model=policy_model)
    only = chosen.chosen()
    kept = None if only else read_versions(policy_model)
    rewards = track_versions(policy_model=policy_model, collection=only) if kept is None else kept.figures or []
    chart = draw_versions(rewards[-_SHOWN_VERSIONS:], first=max(0, len(rewards) - _SHOWN_VERSIONS) + 1)
    return {"version_filter": chosen, "chart": chart, "version_count": len(rewards), "kept": kept}


@sensitive_post_parameters("api_key")
@allow(GET=Permission.MODELS, POST=Permission.MODELS)
def model_edit(request: HttpRequest, slug: str = "") -> HttpResponse:
    """Edit the policy model, or create one."""
    policy_model = get_object_or_404(PolicyModel, slug=slug) if slug else PolicyModel()
    form = PolicyModelForm(posted(request), instance=policy_model)
    if form.is_valid():
        with show_errors(form):
            saved = save_policy_model(policy_model=form.instance, api_key=form.given_key(), user=request.user)
            if "check" in request.POST:
                probe_policy_model(policy_model=saved)
            _tell_saved(request, saved)
            return go(request, "dashboard:model_detail", saved.slug)
    elif form.is_bound:
        # Show the errors that saving would raise, too.
        add_errors_to_valid_fields(form, find_errors(form.instance))
    return answer_form(request, "models/form.html", {"form": form, "policy_model": policy_model})


def _tell_saved(request: HttpRequest, saved: PolicyModel) -> None:
    if "check" not in request.POST:
        messages.success(request, f"Saved {saved.name}.")
    elif saved.health == Health.HEALTHY:
        messages.success(request, f"Saved {saved.name}. The endpoint responds.")
    else:
        messages.error(request, f"Saved {saved.name}, but its health check failed: {saved.health_message}")


@allow(POST=Permission.MODELS)
def model_check(request: HttpRequest, slug: str) -> HttpResponse:
    checked = probe_policy_model(policy_model=get_object_or_404(PolicyModel, slug=slug))
    return answer_health(request, checked, "model")


@allow(POST=Permission.MODELS)
def model_check_logprobs(request: HttpRequest, slug: str) -> HttpResponse:
    """Let the server of the model score captured ids again."""
    policy_model = get_object_or_404(PolicyModel, slug=slug)
    then = reverse("dashboard:model_detail", args=[slug]) + "#logprobs"
    return carry_out(request, lambda: check_logprobs(policy_model=policy_model, user=request.user), then=then)


@allow(GET=Permission.MODELS, POST=Permission.MODELS)
def model_try(request: HttpRequest, slug: str) -> HttpResponse:
    policy_model = get_object_or_404(PolicyModel, slug=slug)
    form = TryForm(posted(request))
    context: dict[str, Any] = {"form": form, "policy_model": policy_model}
    if form.is_valid():
        with show_errors(form):
            trial = try_model(policy_model=policy_model, user=request.user, **form.cleaned_data)
            context |= {"trial": trial, "trace": show_events(trial.events)}
            return answer(request, "models/try.html", context, part="form")
    return answer_form(request, "models/try.html", context)
