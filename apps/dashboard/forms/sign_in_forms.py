"""The sign-in form. Names and passwords are only compared, so nothing is said about their shape."""

from django import forms


class SignInForm(forms.Form):
    username = forms.CharField(
        label="User name", max_length=150, widget=forms.TextInput(attrs={"autocomplete": "username", "autofocus": True})
    )
    password = forms.CharField(
        strip=False, max_length=1000, widget=forms.PasswordInput(attrs={"autocomplete": "current-password"})
    )
