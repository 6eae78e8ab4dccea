"""Form of a retention rule."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import bound_fields, hide_optional_label
from apps.dashboard.forms.spec_fields import spec_form
from apps.exports.retention.retention_rule import RetentionRule

USES = ("ignore_exports", "ignore_pair_sets", "ignore_queues", "ignore_reviews")


@spec_form(RetentionRule)
class RetentionForm(forms.Form):
    """A retention rule. Only the preview is open at first; deleting needs a second request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("what", "archived"):
            hide_optional_label(self.fields[name])

    use_fields = bound_fields(USES)

    @property
    def rule(self) -> RetentionRule:
        return RetentionRule(**{**self.cleaned_data, "collections": list(self.cleaned_data["collections"])})
