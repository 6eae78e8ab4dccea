"""Forms for creating, editing and deleting datasets, and for marking tasks."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import slug_field
from apps.environments.models import Environment
from apps.tasks.models import Dataset


class DatasetNamesForm(forms.Form):
    name = forms.CharField(max_length=100)
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))


class DatasetForm(DatasetNamesForm):
    field_order = ["name", "slug", "environment", "description"]
    slug = slug_field("dataset")
    environment = forms.ModelChoiceField(
        Environment.objects.all(),
        to_field_name="slug",
        help_text="Provides the tools and the verifier for all tasks of the dataset",
    )

    def clean_slug(self) -> str:
        slug: str = self.cleaned_data["slug"]
        if Dataset.objects.filter(slug=slug).exists():
            raise forms.ValidationError("Another dataset has this slug.")
        return slug


class DeleteForm(forms.Form):
    """Confirm a deletion by typing the name, because it cannot be undone."""

    name = forms.CharField(max_length=200, widget=forms.TextInput(attrs={"autocomplete": "off", "class": "code"}))

    def __init__(self, *args: Any, wanted: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._wanted = wanted
        self.fields["name"].label = f"Type {wanted} to delete it"

    def clean_name(self) -> str:
        given: str = self.cleaned_data["name"]
        if given.strip() != self._wanted:
            raise forms.ValidationError(f"This is not {self._wanted}.")
        return given


class MarkForm(forms.Form):
    """One mark to set on the selected tasks."""

    action = forms.ChoiceField(
        choices=[
            ("add_tag", "Add tag"),
            ("remove_tag", "Remove tag"),
            ("split", "Assign split"),
            ("retire", "Retire: leave out of new collections"),
            ("restore", "Restore retired tasks"),
        ]
    )
    word = forms.CharField(required=False, max_length=64)

    def marks(self) -> dict[str, Any]:
        """Return the arguments of mark_tasks."""
        word = self.cleaned_data["word"]
        return {
            "add_tag": {"add_tags": [word]},
            "remove_tag": {"remove_tags": [word]},
            "split": {"split": word},
            "retire": {"retired": True},
            "restore": {"retired": False},
        }[self.cleaned_data["action"]]

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("action") in {"add_tag", "remove_tag"} and not given.get("word", "").strip():
            raise forms.ValidationError("Enter a tag.")
        return given
