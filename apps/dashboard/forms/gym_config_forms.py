"""Form to register NeMo Gym configurations, pasted or as files, with the addresses of their servers."""

import hashlib
import json
from typing import Any

from django import forms

from apps.dashboard.forms.fields import LinesField, hide_optional_label
from apps.dashboard.forms.import_forms import SeveralFiles
from apps.gym.gymconfig.pasted_files import MOST_PASTED, join_texts
from apps.gym.redaction.shortening import cut


class YamlFilesField(forms.FileField):
    """Optional files, as names and texts."""

    def clean(self, data: Any, initial: Any = None) -> Any:
        found = []
        for given in data if isinstance(data, list | tuple) else [data] if data else []:
            file = super().clean(given, initial)
            if file.size > MOST_PASTED:
                raise forms.ValidationError(f"{file.name} has {file.size:,} bytes; at most {MOST_PASTED:,} are read.")
            try:
                found.append((str(file.name), file.read().decode()))
            except UnicodeDecodeError:
                raise forms.ValidationError(f"{file.name} is not UTF-8 text.") from None
        return found


class GymConfigForm(forms.Form):
    """Field names are the arguments of register_pasted, except for files, which are added to the text."""

    # At least one of the two is required.
    config_files = hide_optional_label(
        YamlFilesField(
            label="Files",
            required=False,
            allow_empty_file=True,
            help_text="Appended to the text below in order",
            widget=SeveralFiles(attrs={"accept": ".yaml,.yml,.txt"}),
        )
    )
    text = hide_optional_label(
        forms.CharField(
            label="Configurations",
            required=False,
            strip=False,
            max_length=MOST_PASTED,
            widget=forms.Textarea(attrs={"class": "code", "rows": 16, "spellcheck": "false"}),
            help_text="YAML. Start each document with a line like --- # env.yaml. "
            "Later documents override earlier ones.",
        )
    )
    addresses = LinesField(
        label="Server URLs",
        help_text="NAME=URL, one per line. Overrides the configuration.",
    )
    without_models = forms.BooleanField(label="Skip models", required=False)
    without_data = forms.BooleanField(label="Skip datasets", required=False)
    previewed = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean_addresses(self) -> dict[str, str]:
        found = {}
        for line in self.cleaned_data["addresses"]:
            name, equals, url = line.partition("=")
            if not (name.strip() and equals and url.strip()):
                raise forms.ValidationError(f"{cut(line, 80)}: use the form NAME=URL.")
            found[name.strip()] = url.strip()
        return found

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        pasted, files = _plain(given.get("text", "")), given.pop("config_files", [])
        # A file that is submitted again together with its text is added once.
        fresh = [(name, text) for name, text in files if text.strip() and _plain(text) not in pasted]
        given["text"] = _plain("\n".join(part for part in (pasted, join_texts(fresh)) if part.strip()))
        if not given["text"] and not self.errors:
            self.add_error("text", "Paste a configuration or choose a file.")
        elif len(given["text"]) > MOST_PASTED:
            self.add_error("text", f"Together they have more than {MOST_PASTED:,} characters.")
        return given

    @property
    def wish(self) -> dict[str, Any]:
        """Return the arguments of register_pasted."""
        return {name: value for name, value in self.cleaned_data.items() if name != "previewed"}

    @property
    def digest(self) -> str:
        """Return a digest of the request, to check that the previewed configuration is registered."""
        return hashlib.sha256(json.dumps(self.wish, sort_keys=True).encode(errors="replace")).hexdigest()

    @property
    def was_previewed(self) -> bool:
        return bool(self.cleaned_data["previewed"] == self.digest)

    def again(self) -> "GymConfigForm":
        """Return an unbound copy with the files in its text and the previewed digest."""
        lines = [f"{name}={url}" for name, url in self.cleaned_data["addresses"].items()]
        return GymConfigForm(initial={**self.wish, "addresses": lines, "previewed": self.digest})


def _plain(text: str) -> str:
    """Normalise line ends, because browsers change them and the digest must match."""
    return text.replace("\r\n", "\n").rstrip()
