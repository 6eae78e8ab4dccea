"""Forms of the upload wizard: file, column mapping, confirmation."""

from io import BytesIO
from typing import Any, BinaryIO, cast

from django import forms

from apps.dashboard.forms.fields import hide_optional_label
from apps.dashboard.forms.spec_fields import spec_form
from apps.gym.redaction.shortening import cut
from apps.gym.specs import spec_fields
from apps.gym.tasks.mappings.column_mapping import MappingRefused, read_mapping, write_mapping
from apps.tasks.models import Upload
from apps.tasks.upload_choices import ChoiceRefused, Choices, read_shares

ACCEPTED = ".jsonl,.ndjson,.json,.csv,.tsv,.parquet,.gz,.zst,.txt,.zip"
_CODE = {"class": "code", "spellcheck": "false", "autocomplete": "off"}


class UploadForm(forms.Form):
    """A file, or pasted rows."""

    file = hide_optional_label(
        forms.FileField(
            required=False,
            # An upload without rows is stored and shown as rejected.
            allow_empty_file=True,
            label="File (choose or drop)",
            help_text="JSONL, JSON array, CSV, TSV or Parquet; also compressed as .gz or .zst, or as .zip with images",
            widget=forms.ClearableFileInput(attrs={"accept": ACCEPTED}),
        )
    )
    rows = hide_optional_label(
        forms.CharField(
            required=False,
            strip=False,
            label="Or paste rows",
            help_text="JSONL or a JSON array",
            widget=forms.Textarea(attrs={"class": "code", "rows": 8, "spellcheck": "false", "wrap": "off"}),
        )
    )

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        file, rows = given.get("file"), (given.get("rows") or "").strip()
        if "file" in self.errors:
            return given
        # Compared with None, because an empty file is falsy.
        if file is not None and rows:
            raise forms.ValidationError("Choose a file or paste rows, not both.")
        if file is None and not rows:
            raise forms.ValidationError("Choose a file or paste at least one row.")
        return given

    def content(self) -> tuple[BinaryIO, str]:
        """Return the content and its name."""
        file = self.cleaned_data["file"]
        if file is not None:
            return cast(BinaryIO, file), str(file.name)
        return BytesIO(self.cleaned_data["rows"].encode()), "pasted rows"


def _path(label: str, help_text: str = "") -> forms.CharField:
    widget = forms.TextInput(attrs={**_CODE, "list": "columns"})
    return forms.CharField(required=False, max_length=200, label=label, help_text=help_text, widget=widget)


def _template(label: str, help_text: str) -> forms.CharField:
    return forms.CharField(
        required=False,
        strip=False,
        max_length=20_000,
        label=label,
        help_text=help_text,
        widget=forms.Textarea(attrs={**_CODE, "rows": 3}),
    )


PATHS = ("input", "context", "images", "expected_answer", "external_id", "split_column", "tags", "tools")
TEMPLATES = ("user", "system")


@spec_form(Choices, leave=["mapping", "split_ratios", "check_only"])
class MappingForm(forms.Form):
    """The column mapping, and how the rows are added to the dataset."""

    kind = forms.ChoiceField(
        label="Mapping",
        choices=[("found", "Detected automatically"), ("own", "Custom")],
        widget=forms.RadioSelect,
    )
    input = _path("Prompt", "Column with the question or the list of messages")
    context = _path("Context", "Column with text appended to the prompt after an empty line")
    images = _path("Images", "Column with one or more images that belong to the prompt")
    user = _template(
        "User message template",
        "Replaces the prompt column. Put column names in braces: Solve {problem}. Write literal braces twice: {{ }}.",
    )
    system = _template("System message", "Template, placed before the prompt")
    expected_answer = _path("Expected answer")
    answer_extractor = forms.CharField(
        required=False,
        max_length=2_100,
        label="Answer extractor",
        help_text="Extracts the answer from a longer text. Use ####, \\boxed{}, regex:… or a JSON pointer "
        "like /answer.",
        widget=forms.TextInput(attrs={**_CODE, "list": "extractors"}),
    )
    external_id = _path(
        "ID", "Identifies the task across versions. To combine columns, write for example {split}/{number}."
    )
    split_column = _path("Split")
    tags = _path("Tags", "Column with a list, or with comma-separated text")
    tools = _path("Tools")
    fields_text = forms.CharField(
        required=False,
        label="More verifier fields",
        help_text="One per line: name = column, or name = column | extractor",
        widget=forms.Textarea(attrs={**_CODE, "rows": 3}),
    )
    rest = forms.ChoiceField(
        label="Other columns",
        choices=[("keep", "Keep as verifier fields"), ("drop", "Drop")],
        initial="keep",
        widget=forms.RadioSelect,
    )
    cut_answer = forms.BooleanField(required=False, label="Use the last assistant message as the expected answer")
    save_as = forms.CharField(
        required=False, max_length=60, label="Save mapping as", help_text="To reuse it for files with the same columns"
    )
    split_ratios = forms.CharField(
        required=False,
        max_length=300,
        label="Random split",
        help_text="Shares, for example train:0.9, validation:0.1",
        widget=forms.TextInput(attrs=_CODE),
    )

    def __init__(self, *args: Any, found: dict[str, Any] | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._found = found
        for name in ("mode", "on_error"):
            self.fields[name].widget = forms.RadioSelect(choices=list(spec_fields(Choices)[name].option.names.items()))
        for name in ("on_duplicate", "on_credential", "split_seed"):
            self.fields[name].required = False

    def clean_split_ratios(self) -> dict[str, float]:
        try:
            return read_shares(self.cleaned_data["split_ratios"])
        except ChoiceRefused as error:
            raise forms.ValidationError(str(error)) from None

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("kind") == "own":
            try:
                given["mapping"] = write_mapping(read_mapping(self._own(given)))
            except MappingRefused as error:
                names = {
                    "fields": "fields_text",
                    "split": "split_column",
                    "extract/expected_answer": "answer_extractor",
                }
                name = error.argument.split("/")[0]
                named = names.get(error.argument) or names.get(name, "fields_text" if name == "extract" else name)
                self.add_error(named or "input", str(error))
        else:
            given["mapping"] = self._found
        if not self.errors:
            try:
                self.choices().as_fields()
            except ChoiceRefused as error:
                name = error.argument.split("/")[0]
                self.add_error(name if name in self.fields else None, str(error))
        return given

    def _own(self, given: dict[str, Any]) -> dict[str, Any]:
        mapping = {("split" if name == "split_column" else name): given.get(name) for name in (*PATHS, *TEMPLATES)}
        fields: dict[str, str] = {}
        extract: dict[str, str] = {}
        if extractor := given.get("answer_extractor", "").strip():
            extract["expected_answer"] = extractor
        for line in filter(None, map(str.strip, given.get("fields_text", "").splitlines())):
            name, sign, path = line.partition("=")
            if not sign or not name.strip() or not path.strip():
                raise MappingRefused(f"“{cut(line, 60)}” is not of the form: name = column.", "fields")
            path, has_extractor, extractor = path.partition(" | ")
            fields[name.strip()] = path.strip()
            if has_extractor:
                extract[name.strip()] = extractor.strip()
        kept = {name: value for name, value in mapping.items() if value}
        return {
            **kept,
            "fields": fields,
            "extract": extract,
            "rest": given.get("rest", "keep"),
            "cut_answer": given.get("cut_answer", False),
        }

    def choices(self, *, check_only: bool = False) -> Choices:
        given = self.cleaned_data
        chosen: dict[str, Any] = {
            name: given.get(name) or "" for name in ("mode", "on_duplicate", "on_error", "split", "note")
        }
        chosen["on_credential"] = given.get("on_credential") or Upload.OnCredential.KEEP
        chosen["split_ratios"] = given.get("split_ratios") or {}
        return Choices(
            **chosen, split_seed=given.get("split_seed") or 0, mapping=given.get("mapping"), check_only=check_only
        )


def mapping_initial(mapping: dict[str, Any] | None, upload: Upload, *, own: bool) -> dict[str, Any]:
    """Return initial values: the mapping, and earlier choices for this upload."""
    given = mapping or {}
    extract = given.get("extract", {})
    shown = {name: given.get(name, "") for name in (*PATHS, *TEMPLATES) if name != "split_column"}
    return {
        **shown,
        "split_column": given.get("split", ""),
        "answer_extractor": extract.get("expected_answer", ""),
        "fields_text": "\n".join(
            f"{name} = {path}" + (f" | {extract[name]}" if name in extract else "")
            for name, path in given.get("fields", {}).items()
        ),
        "rest": given.get("rest", "keep"),
        "cut_answer": given.get("cut_answer", False),
        "kind": "own" if own else "found",
        "mode": upload.mode,
        "on_error": upload.on_error,
        "on_credential": upload.on_credential,
        "split": upload.split,
        "split_ratios": ", ".join(f"{name}:{share:g}" for name, share in upload.split_ratios.items()),
        "split_seed": upload.split_seed,
        "note": upload.note,
    }


class CommitForm(forms.Form):
    """Confirm that a validated file is loaded."""

    note = forms.CharField(required=False, max_length=200, label="Version note")
    skip_bad = forms.BooleanField(required=False, initial=True, widget=forms.HiddenInput)

    def __init__(self, *args: Any, upload: Upload, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._must_skip = bool(upload.rejected) and upload.on_error == Upload.OnError.REJECT
        if not self._must_skip:
            del self.fields["skip_bad"]

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if self._must_skip and not given.get("skip_bad"):
            raise forms.ValidationError("Some rows are invalid. Skip them, or correct the file and upload it again.")
        return given
