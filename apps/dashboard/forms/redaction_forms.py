"""What is taken for a credential here, and a text to try it on."""

from django import forms

from apps.policies.models import RedactionPattern
from apps.policies.redaction_patterns import MAX_SAMPLE


class PatternForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = RedactionPattern
        fields = ["kind", "text", "least"]


class SampleForm(forms.Form):
    sample = forms.CharField(
        label="A text to try",
        max_length=MAX_SAMPLE,
        widget=forms.Textarea(attrs={"rows": 6, "class": "mono"}),
        help_text="It is not stored.",
    )
