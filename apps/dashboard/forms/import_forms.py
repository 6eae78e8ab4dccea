"""Which files of stored rollouts to import, and as what."""

from typing import Any

from django import forms

from apps.agents.models import Agent
from apps.gym.rollout_files.shapes.stored_rows import FORMATS
from apps.policies.models import PolicyModel
from apps.rollouts.imports.task_matching import File
from apps.tasks.models import Dataset, Upload


class SeveralFiles(forms.ClearableFileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """One file or several; each is checked as one."""

    def clean(self, data: Any, initial: Any = None) -> Any:
        several = data if isinstance(data, list | tuple) else [data]
        return [super(FilesField, self).clean(one, initial) for one in several] if several else super().clean(None)


class ImportForm(forms.Form):
    """Field names are the arguments of import_rollouts."""

    rollout_files = FilesField(
        label="Files",
        allow_empty_file=True,
        help_text="JSONL of one collection run, with what stands beside it: failures, task rows or materialised "
        "inputs, metadata.json",
        widget=SeveralFiles(attrs={"accept": ".jsonl,.ndjson,.json,.txt,.gz,.zst"}),
    )
    dataset = forms.ModelChoiceField(
        Dataset.objects.none(),
        to_field_name="slug",
        empty_label="Choose a dataset",
        help_text="Its environment is the one that verifies again; the tasks become a version of it",
    )
    agent = forms.ModelChoiceField(Agent.objects.none(), to_field_name="slug", empty_label=None)
    policy_model = forms.ModelChoiceField(
        PolicyModel.objects.none(),
        to_field_name="slug",
        required=False,
        empty_label="the one named in the rows",
        label="Policy model",
    )
    name = forms.CharField(max_length=200, required=False)
    format = forms.ChoiceField(label="What the lines are", choices=[*FORMATS.items()], initial="auto", required=False)
    on_error = forms.ChoiceField(
        label="When a line is wrong",
        choices=[(Upload.OnError.REJECT, "import nothing"), (Upload.OnError.SKIP, "import the good lines")],
        initial=Upload.OnError.REJECT,
        widget=forms.RadioSelect,
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows = {
            "dataset": Dataset.objects.select_related("environment"),
            "agent": Agent.objects.all(),
            "policy_model": PolicyModel.objects.all(),
        }
        for name, found in rows.items():
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField)
            field.queryset = found

    @property
    def wish(self) -> dict[str, Any]:
        """The arguments of import_rollouts."""
        given = dict(self.cleaned_data)
        chosen = given.pop("rollout_files")
        given["format"] = given["format"] or "auto"
        return {**given, "files": [File(str(file.name), file) for file in chosen]}
