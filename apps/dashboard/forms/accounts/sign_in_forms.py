"""Forms of invitations and of two-factor authentication."""

from typing import Any

from django import forms
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from apps.accounts.invitations import DEFAULT_DAYS, MOST_DAYS
from apps.accounts.models import Role, User

_LONGEST_CODE = 64


def password_field(label: str, autocomplete: str, **options: Any) -> forms.CharField:
    widget = forms.PasswordInput(attrs={"autocomplete": autocomplete})
    return forms.CharField(label=label, strip=False, max_length=1000, widget=widget, **options)


class InvitationForm(forms.Form):
    email = forms.EmailField(
        required=False,
        max_length=254,
        help_text="Stored with the new account. GymWeb does not send the link.",
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )
    role = forms.ChoiceField(choices=Role.choices, initial=Role.VIEWER)
    days = forms.IntegerField(label="Valid for (days)", min_value=1, max_value=MOST_DAYS, initial=DEFAULT_DAYS)


class AcceptForm(forms.Form):
    username = forms.CharField(
        label="User name",
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "username", "autocapitalize": "none", "autofocus": True}),
    )
    password = password_field("Password", "new-password", help_text="At least 10 characters. A passphrase works well.")
    again = password_field("Repeat password", "new-password")

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        password = given.get("password")
        if password:
            try:
                validate_password(password, User(username=given.get("username", "")))
            except ValidationError as weak:
                self.add_error("password", weak)
            if given.get("again") not in {None, password}:
                self.add_error("again", "The two passwords differ.")
        return given


class CodeForm(forms.Form):
    code = forms.CharField(
        max_length=_LONGEST_CODE,
        help_text="6 digits from your authenticator app, or a recovery code",
        widget=forms.TextInput(
            attrs={"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false", "autofocus": True}
        ),
    )


class AppCodeForm(CodeForm):
    """Confirms a new authenticator app, whose recovery codes do not exist yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["code"].help_text = "6 digits from your authenticator app"


class CurrentPasswordForm(forms.Form):
    """Confirms a change of the sign-in, so that an open browser alone does not allow it."""

    password = password_field("Current password", "current-password")
