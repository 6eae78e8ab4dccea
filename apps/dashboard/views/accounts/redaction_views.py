"""Redaction: what people added to the built-in rules, and a box to try a text in."""

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.redaction_forms import PatternForm, SampleForm
from apps.policies.installation_redactor import fresh_redactor
from apps.policies.models import RedactionPattern
from apps.policies.redaction_patterns import delete_pattern, save_pattern
from apps.rollouts.models import Collection
from apps.rollouts.steering.flag_resolution import resolve_flags


@allow(GET=Permission.CONFIGURE, POST=Permission.CONFIGURE)
def redaction(request: PageRequest) -> HttpResponse:
    if request.method != "POST":
        return _page(request, PatternForm(), SampleForm())
    form = PatternForm(request.POST)
    if form.is_valid():
        try:
            save_pattern(pattern=form.instance, user=request.user)
        except ValidationError as wrong:
            form.add_error(None, wrong)
        else:
            messages.success(request, "Added. Workers go by it within seconds; what is stored already stays as it is.")
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
    messages.success(request, "Deleted. What was redacted by it stays so.")
    return redirect("dashboard:redaction")


@allow(POST=Permission.EXPORT)
def collection_resolve_flags(request: PageRequest, pk: int) -> HttpResponse:
    collection = get_object_or_404(Collection.objects.present(), pk=pk)
    resolved = resolve_flags(collection=collection, user=request.user)
    flags = "1 flag is" if resolved == 1 else f"{resolved:,} flags are"
    messages.success(request, f"{flags} resolved: exports take these rollouts again.")
    return redirect("dashboard:collection_detail", pk=pk)


def _page(
    request: PageRequest, form: PatternForm, sample: SampleForm, *, status: int = 200, **found: object
) -> HttpResponse:
    context = {"form": form, "sample": sample, "patterns": RedactionPattern.objects.all(), **found}
    return render(request, "redaction/redaction.html", context, status=status)
