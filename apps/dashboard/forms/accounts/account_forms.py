"""Forms for signing in, the user's own password and keys, and for admins, other users."""

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.template.defaultfilters import pluralize
from django.utils import timezone

from apps.accounts.models import Role, User
from apps.accounts.permissions import useful_scopes
from apps.dashboard.forms.accounts.sign_in_forms import password_field


class SignInForm(forms.Form):
    username = forms.CharField(
        label="User name", max_length=150, widget=forms.TextInput(attrs={"autocomplete": "username", "autofocus": True})
    )
    password = password_field("Password", "current-password")


class PasswordForm(forms.Form):
    current = password_field("Current password", "current-password")
    password = password_field(
        "New password", "new-password", help_text="At least 10 characters. A passphrase works well."
    )
    again = password_field("Repeat new password", "new-password")
    revoke_keys = forms.BooleanField(
        required=False, initial=True, help_text="Programs that use a revoked key stop working."
    )

    def __init__(self, *args: object, person: User, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.person = person
        active = person.api_keys.usable().count()
        self.fields["revoke_keys"].label = f"Revoke my {active} active API key{pluralize(active)}"
        if not active:
            del self.fields["revoke_keys"]
        if not person.has_usable_password():
            del self.fields["current"]

    def clean_again(self) -> str:
        again: str = self.cleaned_data["again"]
        if again != self.cleaned_data.get("password"):
            raise forms.ValidationError("The two new passwords differ.")
        return again


class ApiKeyForm(forms.Form):
    name = forms.CharField(
        max_length=100,
        help_text="Where the key is used, e.g. training cluster",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    days = forms.TypedChoiceField(
        label="Expires",
        coerce=int,
        choices=[(30, "In 30 days"), (90, "In 90 days"), (365, "In a year"), (0, "never")],
        initial=90,
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes",
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one scope."},
    )

    def __init__(self, *args: object, person: User, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        field: Any = self.fields["scopes"]
        field.choices = [(scope.value, f"{scope.value} – {scope.label}") for scope in useful_scopes(person.role)]
        if len(field.choices) == 1:
            field.initial = [scope for scope, _ in field.choices]

    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["days"]
        return timezone.now() + timedelta(days=days) if days else None


class PersonCreateForm(forms.Form):
    username = forms.CharField(
        label="User name",
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"}),
    )
    email = forms.EmailField(required=False, max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "off"}))
    role = forms.ChoiceField(choices=Role.choices, initial=Role.VIEWER)


class PersonEditForm(forms.Form):
    email = forms.EmailField(required=False, max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "off"}))
    role = forms.ChoiceField(choices=Role.choices)
    is_active = forms.BooleanField(
        label="Active",
        required=False,
        help_text="Deactivated users cannot sign in, and their API keys stop working. Nothing is deleted.",
    )
    keep_out = forms.BooleanField(
        label="Stay deactivated",
        required=False,
        help_text="If not selected, a sign-in with a mapped group reactivates the account.",
    )

    def __init__(self, *args: Any, person: User, **kwargs: Any) -> None:
        initial = {"email": person.email, "role": person.role, "is_active": person.is_active}
        super().__init__(*args, **{**kwargs, "initial": initial})
        del self.fields["is_active" if person.is_suspended else "keep_out"]

    def changes(self) -> dict[str, Any]:
        """Return the arguments of `edit_user`. Nothing but `keep_out` deactivates a suspended account for good."""
        given = dict(self.cleaned_data)
        if given.pop("keep_out", False):
            given["is_active"] = False
        return given
