"""Labels and fields of export options and filters."""

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.dashboard.forms.fields import NamesField
from apps.dashboard.forms.spec_fields import make_field
from apps.exports.export_filters import Filters
from apps.exports.held_out_splits import split_label
from apps.gym.specs import spec_fields
from apps.pairs.models import PreferencePair
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH

BOXES = 30
"""Maximum number of splits shown as checkboxes; above it, users type the names."""


def split_field(there: Mapping[str, int]) -> forms.Field:
    """Return a field of splits with the number of their tasks."""
    label = "Splits of the dataset"
    if len(there) > BOXES:
        return NamesField(label=label, help_text="Names separated by commas; empty: all splits")
    choices = [
        (split, f"{split_label(split)} · {count:,} task{'' if count == 1 else 's'}") for split, count in there.items()
    ]
    return forms.MultipleChoiceField(
        choices=choices,
        label=label,
        widget=forms.CheckboxSelectMultiple,
        help_text="Leave out evaluation splits: training on them makes comparisons invalid",
        error_messages={
            "required": "Choose the splits to export.",
            "invalid_choice": "This collection has no tasks of split %(value)s.",
        },
    )


def filter_fields() -> dict[str, forms.Field]:
    """Return a new field for each filter except splits, by name."""
    made = {name: make_field(field) for name, field in spec_fields(Filters).items() if name != "splits"}
    for field in made.values():
        field.required = False
    made["q"].widget = forms.TextInput(attrs={"class": "code", "spellcheck": "false", "maxlength": MAX_LENGTH})
    made["rollouts"] = _again(made["rollouts"], forms.CharField, widget=forms.Textarea(attrs={"rows": 2}))
    sources, boxes = PreferencePair.Source.choices, forms.CheckboxSelectMultiple
    made["sources"] = _again(made["sources"], forms.MultipleChoiceField, choices=sources, widget=boxes)
    return made


def _again(field: forms.Field, kind: type[forms.Field], **given: Any) -> forms.Field:
    """Return a field of another kind with the same label and help."""
    return kind(required=False, label=field.label, help_text=field.help_text, **given)
