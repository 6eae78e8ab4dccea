"""Form of the model matrix. It is sent in the address, so that a link shows the same matrix."""

from typing import Any

from django import forms

from apps.dashboard.forms.spec_fields import spec_form
from apps.rollouts.metrics.model_matrix import MatrixSpec
from apps.tasks.models import Dataset, Suite


@spec_form(MatrixSpec)
class MatrixForm(forms.Form):
    dataset = forms.ChoiceField(required=False, label="Dataset", help_text="Needed for splits and tags")
    suite = forms.ChoiceField(
        required=False, label="Suite", help_text="Shows only the datasets of the suite, and their mean"
    )
    baseline = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any) -> None:
        given = {name: field.initial for name, field in self.base_fields.items() if field.initial is not None}
        super().__init__({**given, **data})
        self.fields["k"].widget.attrs["placeholder"] = "mean, or k for pass@k"
        for name, model, empty in (("dataset", Dataset, "All datasets"), ("suite", Suite, "No suite")):
            slugs = model._default_manager.order_by("slug").values_list("slug", flat=True)
            self.fields[name].choices = [("", empty), *((slug, slug) for slug in slugs)]  # type: ignore[attr-defined]

    @property
    def spec(self) -> MatrixSpec:
        return MatrixSpec(**self.cleaned_data)
