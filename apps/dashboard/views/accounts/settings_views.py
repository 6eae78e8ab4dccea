"""Settings: the index, all API keys, secrets of models, outgoing calls, and redaction rules."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import F
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from apps.accounts.models import ApiKey, User
from apps.accounts.permissions import Permission, allow, user_may
from apps.alerts.models import Subscription
from apps.dashboard.chrome.page_answers import posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.accounts.settings_forms import AddressForm, PatternForm, SampleForm, SecretForm
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.overview.outbound_access import read_called, read_entries, try_address
from apps.environments.environment_changes import save_environment
from apps.environments.models import OVER_HTTP, Environment
from apps.exports.models import TraceDestination
from apps.policies.installation_redactor import delete_pattern, fresh_redactor, save_pattern
from apps.policies.models import PolicyModel, RedactionPattern
from apps.policies.policy_model_changes import save_policy_model
from apps.tracking.models import Tracker

_SHOWN_KEYS = 500


@allow(GET=Permission.READ)
def settings(request: PageRequest) -> HttpResponse:
    user = request.user
    counts: dict[str, Any] = {"own_keys": user.api_keys.filter(revoked_at__isnull=True).count()}
    counts["trackers"] = Tracker.objects.count()
    if user_may(user, Permission.ACCOUNTS):
        counts["people"] = User.objects.filter(is_active=True).count()
        counts["keys"] = ApiKey.objects.usable().count()
    if user_may(user, Permission.MODELS):
        counts["secrets"] = sum(bool(each.api_key_hint) for each in _holders().values())
    if user_may(user, Permission.CONFIGURE):
        counts["allowed"] = len(read_entries())
        counts["subscriptions"] = Subscription.objects.filter(is_enabled=True).count()
        counts["destinations"] = TraceDestination.objects.count()
        counts["patterns"] = RedactionPattern.objects.count()
    return render(request, "settings/settings.html", {"counts": counts})


@allow(GET=Permission.ACCOUNTS)
def settings_keys(request: PageRequest) -> HttpResponse:
    """List the keys of all users, latest use first."""
    keys = ApiKey.objects.select_related("user").order_by(F("last_used_at").desc(nulls_last=True), "-pk")
    if only_usable := request.GET.get("all") != "1":
        keys = keys.usable()
    context = {"keys": keys[:_SHOWN_KEYS], "total": keys.count(), "only_usable": only_usable}
    return render(request, "settings/keys.html", context)


def _holders() -> dict[str, PolicyModel | Environment]:
    """Return the objects that may have a key, by their name in the form."""
    models = PolicyModel.objects.exclude(base_url="")
    environments = Environment.objects.filter(adapter__in=OVER_HTTP)
    return {f"model:{each.slug}": each for each in models} | {f"environment:{each.slug}": each for each in environments}


@sensitive_post_parameters("api_key")
@sensitive_variables("form", "key")
@never_cache
@allow(GET=Permission.MODELS, POST=Permission.MODELS)
def settings_secrets(request: PageRequest) -> HttpResponse:
    """Set keys. They are write-only: only their last characters are shown."""
    holders = _holders()
    choices = [(of, f"{each.name} ({each.base_url})") for of, each in holders.items()]
    form = SecretForm(posted(request), holders=choices, initial={"of": request.GET.get("of", "")})
    if form.is_valid():
        key = "" if form.cleaned_data["remove"] else form.cleaned_data["api_key"]
        held = holders[form.cleaned_data["of"]]
        try:
            if isinstance(held, PolicyModel):
                save_policy_model(policy_model=held, api_key=key, user=request.user)
            else:
                save_environment(environment=held, api_key=key, user=request.user)
        except ValidationError as wrong:
            form.add_error(None, wrong.messages)
        else:
            messages.success(request, f"The key of {held.name} is {'stored' if key else 'removed'}.")
            return redirect("dashboard:settings_secrets")
    status = 422 if form.is_bound else 200
    return render(request, "settings/secrets.html", {"form": form, "holders": holders}, status=status)


@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def settings_outbound(request: PageRequest) -> HttpResponse:
    form = AddressForm(posted(request))
    context: dict[str, Any] = {"form": form, "entries": read_entries(), "called": read_called()}
    if form.is_valid():
        context["tried"] = try_address(form.cleaned_data["address"])
    status = 422 if form.is_bound and not form.is_valid() else 200
    return render(request, "settings/outbound.html", context, status=status)


@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def redaction(request: PageRequest) -> HttpResponse:
    form = PatternForm(posted(request))
    if form.is_valid():
        with show_errors(form):
            save_pattern(pattern=form.instance, user=request.user)
            messages.success(request, "Added. Workers use it within seconds. Stored data does not change.")
            return redirect("dashboard:redaction")
    return _page(request, form, SampleForm(), status=422 if form.is_bound else 200)


@allow(POST=Permission.CONFIGURE)
def redaction_try(request: PageRequest) -> HttpResponse:
    form = SampleForm(request.POST)
    if not form.is_valid():
        return _page(request, PatternForm(), form, status=422)
    clean, counts = fresh_redactor().redact_text(form.cleaned_data["sample"])
    return _page(request, PatternForm(), form, tried=True, clean=clean, counts=counts)


redaction_delete = action_view(
    Permission.CONFIGURE,
    delete_pattern,
    RedactionPattern,
    "pattern",
    then="redaction",
    success="Deleted. Redacted text stays redacted.",
)


def _page(
    request: PageRequest, form: PatternForm, sample: SampleForm, *, status: int = 200, **found: object
) -> HttpResponse:
    context = {"form": form, "sample": sample, "patterns": RedactionPattern.objects.all(), **found}
    return render(request, "redaction/redaction.html", context, status=status)
