"""Forms of suites: their datasets, and the plan of their collections."""

from typing import Any

from django.core.exceptions import ValidationError

from apps.dashboard.forms.collection_forms import PlanForm
from apps.dashboard.forms.fields import LinesField, NamedForm, bound_fields, hide_optional_label, slug_field
from apps.dashboard.forms.spec_fields import spec_form
from apps.gym.specs import spec_fields
from apps.rollouts.plans.plan_spec import LIMITS, ON_ONE_DATASET, Plan
from apps.tasks.models import Dataset, Suite
from apps.tasks.suite_changes import MAX_DATASETS, find_problems

_BASICS = ("policy_model", "agent", "repeats", "limit")
_LEFT_OUT = (*ON_ONE_DATASET, "prompt_template")


class SuiteForm(NamedForm):
    slug = slug_field("suite")
    datasets = hide_optional_label(
        LinesField(
            rows=6,
            help_text=f"Dataset slugs, one per line. Results show the datasets in this order. Maximum: {MAX_DATASETS}.",
        )
    )

    class Meta:
        model = Suite
        fields = ["name", "slug"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.setdefault("datasets", [dataset.slug for dataset in self.instance.datasets])

    def clean_datasets(self) -> list[Dataset]:
        slugs: list[str] = self.cleaned_data["datasets"]
        if problems := find_problems(slugs):
            raise ValidationError(problems)
        found = {dataset.slug: dataset for dataset in Dataset.objects.filter(slug__in=slugs)}
        if unknown := [slug for slug in slugs if slug not in found]:
            raise ValidationError(f"Unknown dataset “{unknown[0]}”. Give the slugs of existing datasets.")
        datasets = [found[slug] for slug in slugs]
        self.instance.datasets = datasets
        return datasets


@spec_form(Plan, leave=_LEFT_OUT)
class SuitePlanForm(PlanForm):
    """The plan of all datasets of a suite."""

    basic_fields = bound_fields(_BASICS)
    other_fields = bound_fields([name for name in spec_fields(Plan) if name not in {*_BASICS, *LIMITS, *_LEFT_OUT}])
