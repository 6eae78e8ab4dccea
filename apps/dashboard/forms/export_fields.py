"""How the options and filters of exports read on the page."""

from collections.abc import Mapping
from typing import Any

from django import forms

from apps.dashboard.forms.fields import MarksField
from apps.dashboard.forms.spec_fields import make_field
from apps.exports.export_filters import Filters
from apps.exports.held_out_splits import named_split
from apps.gym.specs import spec_fields
from apps.pairs.models import PreferencePair
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH

BOXES = 30
"""Splits that can be marked; of more, people write the names."""


def split_field(there: Mapping[str, int]) -> forms.Field:
    """Of splits with the number of their tasks."""
    label = "Splits of the dataset"
    if len(there) > BOXES:
        return MarksField(label=label, help_text="Their names, between commas; empty takes all")
    choices = [
        (split, f"{named_split(split)} · {count:,} task{'' if count == 1 else 's'}") for split, count in there.items()
    ]
    return forms.MultipleChoiceField(
        choices=choices,
        label=label,
        widget=forms.CheckboxSelectMultiple,
        help_text="Leave out what models are compared on: who trains on it compares nothing",
        error_messages={
            "required": "Mark the splits to write.",
            "invalid_choice": "No task of this collection is of the split %(value)s.",
        },
    )


def filter_fields() -> dict[str, forms.Field]:
    """Return a fresh field for each filter but splits, by name."""
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
