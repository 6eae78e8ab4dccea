"""Redaction settings: custom rules, and a form to test them."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.redaction_forms import PatternForm, SampleForm
from apps.policies.installation_redactor import delete_pattern, fresh_redactor, save_pattern
from apps.policies.models import RedactionPattern
from apps.rollouts.models import Collection
from apps.rollouts.steering.controls import resolve_flags


@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def redaction(request: PageRequest) -> HttpResponse:
    if request.method != "POST":
        return _page(request, PatternForm(), SampleForm())
    form = PatternForm(request.POST)
    if form.is_valid():
        with show_errors(form):
            save_pattern(pattern=form.instance, user=request.user)
            messages.success(request, "Added. Workers use it within seconds. Stored data does not change.")
            return redirect("dashboard:redaction")
    return _page(request, form, SampleForm(), status=422)


@allow(POST=Permission.CONFIGURE)
def redaction_try(request: PageRequest) -> HttpResponse:
    form = SampleForm(request.POST)
    if not form.is_valid():
        return _page(request, PatternForm(), form, status=422)
    clean, counts = fresh_redactor().redact_text(form.cleaned_data["sample"])
    return _page(request, PatternForm(), form, tried=True, clean=clean, counts=counts)


@allow(POST=Permission.CONFIGURE)
def redaction_delete(request: PageRequest, pk: int) -> HttpResponse:
    delete_pattern(pattern=get_object_or_404(RedactionPattern, pk=pk), user=request.user)
    messages.success(request, "Deleted. Redacted text stays redacted.")
    return redirect("dashboard:redaction")


@allow(POST=Permission.EXPORT)
def collection_resolve_flags(request: PageRequest, pk: int) -> HttpResponse:
    resolved = resolve_flags(collection=get_object_or_404(Collection.objects.present(), pk=pk), user=request.user)
    flags = "1 flag is" if resolved == 1 else f"{resolved:,} flags are"
    messages.success(request, f"{flags} resolved. Exports include these rollouts again.")
    return redirect("dashboard:collection_detail", pk=pk)


def _page(
    request: PageRequest, form: PatternForm, sample: SampleForm, *, status: int = 200, **found: object
) -> HttpResponse:
    context = {"form": form, "sample": sample, "patterns": RedactionPattern.objects.all(), **found}
    return render(request, "redaction/redaction.html", context, status=status)
