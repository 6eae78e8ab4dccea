"""NeMo Gym configurations to register, pasted or as files, and where their servers run."""

import hashlib
import json
from typing import Any

from django import forms

from apps.dashboard.forms.fields import LinesField
from apps.dashboard.forms.import_forms import SeveralFiles
from apps.gym.gymconfig.pasted_files import MOST_PASTED, join_texts
from apps.gym.redaction.shortening import cut


class YamlFilesField(forms.FileField):
    """Names and texts of the files; none is fine."""

    def clean(self, data: Any, initial: Any = None) -> Any:
        found = []
        for given in data if isinstance(data, list | tuple) else [data] if data else []:
            file = super().clean(given, initial)
            if file.size > MOST_PASTED:
                raise forms.ValidationError(f"{file.name} has {file.size:,} bytes; at most {MOST_PASTED:,} are read.")
            try:
                found.append((str(file.name), file.read().decode()))
            except UnicodeDecodeError:
                raise forms.ValidationError(f"{file.name} is no text in UTF-8.") from None
        return found


class GymConfigForm(forms.Form):
    """Field names are the arguments of register_pasted, but for the files, which go into the text."""

    config_files = YamlFilesField(
        label="Files",
        required=False,
        allow_empty_file=True,
        help_text="They are added to the text below, in their order",
        widget=SeveralFiles(attrs={"accept": ".yaml,.yml,.txt"}),
    )
    text = forms.CharField(
        label="Configurations",
        required=False,
        strip=False,
        max_length=MOST_PASTED,
        widget=forms.Textarea(attrs={"class": "code", "rows": 16, "spellcheck": "false"}),
        help_text="YAML. Several, each below a line such as --- # env.yaml; later ones override earlier ones",
    )
    addresses = LinesField(
        label="Where servers run",
        help_text="NAME=URL, one a line, over what the configurations say",
    )
    without_models = forms.BooleanField(label="Leave models out", required=False)
    without_data = forms.BooleanField(label="Leave datasets out", required=False)
    previewed = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("config_files", "text"):
            # One of the two is needed.
            self.fields[name].conditional = True  # type: ignore[attr-defined]

    def clean_addresses(self) -> dict[str, str]:
        found = {}
        for line in self.cleaned_data["addresses"]:
            name, equals, url = line.partition("=")
            if not (name.strip() and equals and url.strip()):
                raise forms.ValidationError(f"{cut(line, 80)}: write it with a name, = and a URL.")
            found[name.strip()] = url.strip()
        return found

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        pasted, files = _plain(given.get("text", "")), given.pop("config_files", [])
        # A file that is sent once more with what was read of it counts once.
        fresh = [(name, text) for name, text in files if text.strip() and _plain(text) not in pasted]
        given["text"] = _plain("\n".join(part for part in (pasted, join_texts(fresh)) if part.strip()))
        if not given["text"] and not self.errors:
            self.add_error("text", "Paste a configuration, or choose its file.")
        elif len(given["text"]) > MOST_PASTED:
            self.add_error("text", f"Together they have more than {MOST_PASTED:,} characters.")
        return given

    @property
    def wish(self) -> dict[str, Any]:
        """The arguments of register_pasted."""
        return {name: value for name, value in self.cleaned_data.items() if name != "previewed"}

    @property
    def digest(self) -> str:
        """Of what is wished for: what is registered is what was looked at."""
        return hashlib.sha256(json.dumps(self.wish, sort_keys=True).encode(errors="replace")).hexdigest()

    @property
    def was_previewed(self) -> bool:
        return bool(self.cleaned_data["previewed"] == self.digest)

    def again(self) -> "GymConfigForm":
        """The same, not bound, with the files in its text, and with what has been looked at."""
        lines = [f"{name}={url}" for name, url in self.cleaned_data["addresses"].items()]
        return GymConfigForm(initial={**self.wish, "addresses": lines, "previewed": self.digest})


def _plain(text: str) -> str:
    """With one kind of line end: browsers send their own, and the digest is of what comes back."""
    return text.replace("\r\n", "\n").rstrip()
