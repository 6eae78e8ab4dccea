"""Filters of the audit log."""

from typing import Any

from django import forms

from apps.accounts.models import AuditEntry, AuditEntryQuerySet


class AuditSearchForm(forms.Form):
    user = forms.CharField(label="User", required=False, max_length=150)
    noun = forms.CharField(
        label="Object", required=False, max_length=64, widget=forms.TextInput(attrs={"placeholder": "dataset"})
    )
    action = forms.CharField(
        required=False, max_length=64, widget=forms.TextInput(attrs={"placeholder": "dataset.create"})
    )
    since = forms.DateTimeField(
        label="From (UTC)", required=False, widget=forms.DateTimeInput({"type": "datetime-local"}, "%Y-%m-%dT%H:%M")
    )
    until = forms.DateTimeField(
        label="Before (UTC)", required=False, widget=forms.DateTimeInput({"type": "datetime-local"}, "%Y-%m-%dT%H:%M")
    )
    key = forms.CharField(required=False, max_length=16, widget=forms.HiddenInput)

    def entries(self) -> AuditEntryQuerySet:
        """Return the matching entries; none if a filter is invalid."""
        entries = AuditEntry.objects.with_actors()
        if not self.is_valid():
            return entries.none()
        columns = {"user": "user__username", "key": "api_key__prefix", "since": "at__gte", "until": "at__lt"}
        given: dict[str, Any] = {columns.get(name, name): value for name, value in self.cleaned_data.items() if value}
        return entries.filter(**given)
