"""Form to import stored rollouts."""

from typing import Any

from django import forms

from apps.dashboard.forms.spec_fields import spec_form
from apps.gym.specs import spec_fields
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.task_matching import File


class SeveralFiles(forms.ClearableFileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """One or several files, each validated."""

    def clean(self, data: Any, initial: Any = None) -> Any:
        several = data if isinstance(data, list | tuple) else [data]
        return [super(FilesField, self).clean(one, initial) for one in several] if several else super().clean(None)


@spec_form(ImportOrder)
class ImportForm(forms.Form):
    """The options of an import, and its files."""

    rollout_files = FilesField(
        label="Files",
        allow_empty_file=True,
        help_text="Rollouts, trajectories or sessions of one run, and optionally failures, task rows and metadata.json",
        widget=SeveralFiles(attrs={"accept": ".jsonl,.ndjson,.json,.txt,.gz,.zst"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        on_error = self.fields["on_error"]
        self.fields["agent"].empty_label = None  # type: ignore[attr-defined]
        on_error.required = True
        on_error.widget = forms.RadioSelect(choices=list(spec_fields(ImportOrder)["on_error"].option.names.items()))

    @property
    def order(self) -> ImportOrder:
        """Return the order, with defaults for options that were left out."""
        given = {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}
        return ImportOrder(**{name: value for name, value in given.items() if name != "rollout_files"})

    @property
    def uploaded(self) -> list[File]:
        return [File(str(file.name), file) for file in self.cleaned_data["rollout_files"]]
