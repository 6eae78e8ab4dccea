"""Form of a reverification."""

from django import forms

from apps.dashboard.forms.spec_fields import OneRow, spec_form
from apps.gym.specs import spec_fields
from apps.rollouts.models import Collection
from apps.rollouts.reverification.reverification_spec import ReverificationFilters, ReverificationOrder


@spec_form(ReverificationFilters, leave=["judge_failures", "ids"])
@spec_form(ReverificationOrder, leave=["filters"])
class ReverificationForm(forms.Form):
    """A reverification. Its filters are fields of their own."""

    collection = OneRow(Collection.objects.present(), empty_label="Choose a collection")

    @property
    def order(self) -> ReverificationOrder:
        given = {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}
        filters = {name: given.pop(name) for name in spec_fields(ReverificationFilters) if name in given}
        return ReverificationOrder(**given, filters=filters)
