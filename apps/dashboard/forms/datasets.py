"""Forms of datasets and of uploads into them."""

from io import BytesIO
from typing import Any, BinaryIO, cast

from django import forms

from apps.dashboard.forms.fields import slug_field
from apps.environments.models import Environment
from apps.tasks.models import Dataset, Upload


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


class UploadForm(forms.Form):
    """Either of the first two."""

    file = forms.FileField(
        required=False,
        # An upload without rows is stored and shown like any other that is refused.
        allow_empty_file=True,
        label="File",
        help_text="JSONL: one JSON object a line.",
        widget=forms.ClearableFileInput(attrs={"accept": ".jsonl,.ndjson,.json,.txt"}),
    )
    rows = forms.CharField(
        required=False,
        strip=False,
        label="Or paste rows",
        widget=forms.Textarea(attrs={"class": "code", "rows": 8, "spellcheck": "false", "wrap": "off"}),
    )
    on_error = forms.ChoiceField(
        label="When a line is wrong",
        choices=Upload.OnError.choices,
        initial=Upload.OnError.REJECT,
        widget=forms.RadioSelect,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("file", "rows"):
            self.fields[name].conditional = True  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        file, rows = given.get("file"), (given.get("rows") or "").strip()
        if "file" in self.errors:
            return given
        # Not its truth: an empty file is false.
        if file is not None and rows:
            raise forms.ValidationError("Choose a file or paste rows, not both.")
        if file is None and not rows:
            raise forms.ValidationError("Choose a file or paste at least one row.")
        return given

    def content(self) -> tuple[BinaryIO, str]:
        """What to read, and its name."""
        file = self.cleaned_data["file"]
        if file is not None:
            return cast(BinaryIO, file), str(file.name)
        return BytesIO(self.cleaned_data["rows"].encode()), "pasted rows"
