"""Forms of scans."""

from typing import Any

from django import forms
from django.http import QueryDict

from apps.dashboard.forms.fields import hide_optional_label
from apps.dashboard.forms.spec_fields import spec_form
from apps.gym.request_refusals import Refusal
from apps.gym.specs import spec_fields
from apps.rollouts.models import Scan
from apps.rollouts.scans.scan_estimates import estimate_scan
from apps.rollouts.scans.scan_spec import MAX_BUDGET, ScanSpec


@spec_form(ScanSpec)
class ScanForm(forms.Form):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        example = spec_fields(ScanSpec)["question"].option.example
        self.fields["question"].widget = forms.Textarea(attrs={"rows": 3, "placeholder": example})
        hide_optional_label(self.fields["kind"])

    @property
    def spec(self) -> ScanSpec:
        return ScanSpec(**self.cleaned_data)


def read_estimate(given: QueryDict) -> dict[str, Any]:
    """Return the estimate of an unfinished form, or its problem; empty until a judge model is chosen.

    Name and question may be missing: they hardly change the cost.
    """
    if not given.get("judge_model"):
        return {}
    filled = {name: field.initial for name, field in ScanForm.base_fields.items()}
    form = ScanForm({**filled, **{name: value for name, value in given.items() if value}, "name": "-", "question": "-"})
    if not form.is_valid():
        return {"problem": " ".join(f"{form[name].label}: {problems[0]}" for name, problems in form.errors.items())}
    try:
        return {"estimate": estimate_scan(form.spec)}
    except Refusal as refusal:
        return {"problem": str(refusal)}


class ResumeForm(forms.Form):
    """A new budget. Empty keeps the old one."""

    budget = forms.FloatField(
        required=False,
        min_value=0.01,
        max_value=MAX_BUDGET,
        label="Budget in USD",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )

    @classmethod
    def of(cls, scan: Scan) -> "ResumeForm":
        """Return the form with twice the budget if it is used up."""
        return cls(initial={"budget": scan.budget * 2 if scan.cost >= scan.budget else scan.budget})
