"""Form of a subscription to alerts. Address and secret are write-only."""

from typing import Any

from django import forms

from apps.alerts.models import EVENT_CHOICES, Subscription
from apps.alerts.subscription_changes import MAX_ADDRESS
from apps.alerts.webhook_signatures import generate_secret
from apps.dashboard.forms.fields import hide_optional_label

_PRIVATE = {"autocomplete": "off", "spellcheck": "false", "class": "code"}


class SubscriptionForm(forms.ModelForm):  # type: ignore[type-arg]
    address = forms.CharField(
        label="Address",
        required=False,
        max_length=MAX_ADDRESS,
        widget=forms.TextInput(attrs=_PRIVATE),
        help_text="URL, or e-mail address. Stored encrypted",
    )
    secret = hide_optional_label(
        forms.CharField(
            label="Signing secret",
            required=False,
            max_length=200,
            widget=forms.TextInput(attrs=_PRIVATE),
            help_text="Copy it to the receiver now: it is not shown again",
        )
    )
    event_kinds = forms.MultipleChoiceField(label="Events", choices=EVENT_CHOICES, widget=forms.CheckboxSelectMultiple)

    class Meta:
        model = Subscription
        fields = ["name", "channel", "event_kinds", "min_failure_share", "min_reward_change", "is_enabled"]
        labels = {
            "min_failure_share": "Failure threshold",
            "min_reward_change": "Reward threshold",
            "is_enabled": "Enabled",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hide_optional_label(self.fields["address"])
        if self.instance.pk:
            kept = f"Leave empty to keep {self.instance.address_hint}"
            self.fields["address"].help_text = kept
            self.fields["secret"].help_text = "Leave empty to keep the stored secret"
        else:
            self.initial["secret"] = generate_secret()

    @property
    def address_and_secret(self) -> dict[str, str | None]:
        """Return the arguments of save_subscription. None keeps the stored value."""
        is_webhook = self.cleaned_data["channel"] == Subscription.Channel.WEBHOOK
        return {
            "address": self.cleaned_data["address"] or None,
            "secret": (self.cleaned_data["secret"] or None) if is_webhook else None,
        }
