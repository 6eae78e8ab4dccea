"""Forms of trace destinations, and of a send to one."""

from typing import Any

from django import forms

from apps.dashboard.forms.fields import hide_optional_label
from apps.dashboard.forms.spec_fields import OneRow, spec_form
from apps.exports.models import TraceDestination
from apps.exports.trace_sends.destination_changes import MAX_HEADER_TEXT, MAX_URL, read_headers
from apps.exports.trace_sends.send_orders import TraceSendOrder

_PRIVATE = {"autocomplete": "off", "spellcheck": "false", "class": "code"}


class TraceDestinationForm(forms.ModelForm):  # type: ignore[type-arg]
    """A trace destination. URL and headers are write-only."""

    url = hide_optional_label(
        forms.CharField(
            label="URL",
            required=False,
            max_length=MAX_URL,
            widget=forms.TextInput(attrs={**_PRIVATE, "placeholder": "https://…/v1/traces"}),
            help_text="OTLP/HTTP endpoint for traces. Stored encrypted",
        )
    )
    headers = forms.CharField(
        label="Headers",
        required=False,
        max_length=2 * MAX_HEADER_TEXT,
        widget=forms.Textarea(attrs={**_PRIVATE, "rows": 3, "placeholder": "Authorization: Basic …"}),
        help_text="One per line, as “Name: value”. Stored encrypted and not shown again",
    )
    remove_headers = forms.BooleanField(label="Remove stored headers", required=False)

    class Meta:
        model = TraceDestination
        fields = ["name"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.fields["url"].help_text = f"Leave empty to keep {self.instance.url_hint}"
        if self.instance.header_names:
            kept = ", ".join(self.instance.header_names)
            self.fields["headers"].help_text = f"Leave empty to keep {kept}. New headers replace all of them"
        else:
            del self.fields["remove_headers"]

    def clean_headers(self) -> dict[str, str]:
        return read_headers(self.cleaned_data["headers"])

    @property
    def url_and_headers(self) -> dict[str, Any]:
        """Return the arguments of save_destination. None keeps the stored value."""
        headers = self.cleaned_data["headers"]
        if not headers and not self.cleaned_data.get("remove_headers"):
            return {"url": self.cleaned_data["url"] or None, "headers": None}
        return {"url": self.cleaned_data["url"] or None, "headers": headers}


@spec_form(TraceSendOrder, leave={"export"})
class TraceSendForm(forms.Form):
    """The destination of an export's traces, chosen from a menu: there are few."""

    destination = OneRow(TraceDestination.objects.all(), empty_label="Choose a destination")
