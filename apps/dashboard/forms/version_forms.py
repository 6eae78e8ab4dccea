"""Form to choose the collections whose rewards by model version are shown."""

from typing import Any

from django import forms

from apps.dashboard.forms.spec_fields import OneRow
from apps.policies.models import PolicyModel
from apps.rollouts.models import Collection

_LATEST = 100


class VersionFilterForm(forms.Form):
    collection = OneRow(queryset=Collection.objects.none(), required=False, empty_label="All collections")

    def __init__(self, *args: Any, policy_model: PolicyModel, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["collection"]
        field.queryset = Collection.objects.filter(policy_model=policy_model, rewarded__gt=0)
        # A model may have thousands of collections. The URL may name any of them.
        field.choices = [("", field.empty_label), *((each.pk, each.label) for each in field.queryset[:_LATEST])]

    def chosen(self) -> Collection | None:
        """Return the selected collection; None for all, or if it does not exist."""
        found: Collection | None = self.cleaned_data.get("collection") if self.is_valid() else None
        return found
