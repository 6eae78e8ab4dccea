"""Forms for redaction patterns and for testing them on a text."""

from django import forms

from apps.policies.installation_redactor import MAX_SAMPLE
from apps.policies.models import RedactionPattern


class PatternForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = RedactionPattern
        fields = ["kind", "text", "least"]


class SampleForm(forms.Form):
    sample = forms.CharField(
        label="Test text",
        max_length=MAX_SAMPLE,
        widget=forms.Textarea(attrs={"rows": 6, "class": "mono"}),
        help_text="Not stored",
    )
