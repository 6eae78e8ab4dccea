"""Disk use, and retention rules with a preview."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.retention_forms import RetentionForm
from apps.dashboard.overview.disk_use import read_disk
from apps.exports.retention.retention_plan import apply_retention, plan_retention
from apps.exports.retention.retention_rule import TRACES
from apps.exports.retention.storage_use import read_storage
from apps.rollouts.models import CollectionDeletion

_SHOWN_DELETIONS = 10


def _say_deleting(number: int, what: str) -> str:
    collections = "1 collection" if number == 1 else f"{number:,} collections"
    if what == TRACES:
        return f"The traces of {collections} are being deleted."
    return f"{collections} {'is' if number == 1 else 'are'} being deleted."


@allow(GET=Permission.RETENTION, POST=Permission.RETENTION)
def settings_storage(request: PageRequest) -> HttpResponse:
    """Show disk use, and what a rule would delete. With `delete` in the form, delete it."""
    form = RetentionForm(posted(request))
    plan = None
    if form.is_valid():
        with show_errors(form):
            if "delete" in request.POST:
                number = len(apply_retention(form.rule, user=request.user))
                messages.success(request, _say_deleting(number, form.rule.what))
                return redirect("dashboard:settings_storage")
            plan = plan_retention(form.rule)
    context = {
        "form": form,
        "plan": plan,
        "disk": read_disk(),
        "storage": read_storage(),
        "deletions": CollectionDeletion.objects.select_related("created_by")[:_SHOWN_DELETIONS],
    }
    status = 422 if form.is_bound and form.errors else 200
    return render(request, "settings/storage.html", context, status=status)
