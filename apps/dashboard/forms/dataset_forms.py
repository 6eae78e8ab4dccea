"""Forms of datasets: a new one, its names, marks on its tasks, and the word that deletes it."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import slug_field
from apps.environments.models import Environment
from apps.tasks.models import Dataset


class DatasetForm(forms.Form):
    name = forms.CharField(max_length=100)
    slug = slug_field("dataset")
    environment = forms.ModelChoiceField(
        Environment.objects.all(),
        to_field_name="slug",
        help_text="Gives the tools and the verifier of every task in the dataset.",
    )
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))

    def clean_slug(self) -> str:
        slug: str = self.cleaned_data["slug"]
        if Dataset.objects.filter(slug=slug).exists():
            raise forms.ValidationError("Another dataset has this slug.")
        return slug


class DatasetNamesForm(forms.Form):
    name = forms.CharField(max_length=100)
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))


class DeleteForm(forms.Form):
    """The name, typed: this cannot be taken back."""

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
    """What the chosen tasks are marked with: one thing at a time."""

    action = forms.ChoiceField(
        choices=[
            ("add_tag", "Add the tag"),
            ("remove_tag", "Remove the tag"),
            ("split", "Move to the split"),
            ("retire", "Retire"),
            ("restore", "Bring back"),
        ]
    )
    word = forms.CharField(required=False, max_length=64)

    def marks(self) -> dict[str, Any]:
        """Arguments of mark_tasks."""
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
            raise forms.ValidationError("Which tag? Write it beside.")
        return given
