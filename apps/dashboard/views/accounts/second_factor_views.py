"""Set up and remove two-factor authentication."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from apps.accounts.models import User
from apps.accounts.permissions import Permission, allow
from apps.accounts.second_factor.authenticator_codes import (
    confirm_setup,
    find_setup,
    read_secret,
    remove_second_factor,
    remove_second_factor_of,
    setup_uri,
    start_setup,
)
from apps.accounts.second_factor.recovery_codes import count_recovery_codes, replace_recovery_codes
from apps.accounts.sign_in import SignInRefused, TooManyTries, check_current_password, check_second_factor
from apps.dashboard.chrome.page_answers import answer, go, posted, show_refusal
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.accounts.sign_in_forms import AppCodeForm, CodeForm, CurrentPasswordForm
from apps.dashboard.forms.fields import show_errors


def _page(request: PageRequest, *, status: int = 200, **context: Any) -> HttpResponse:
    """Show the state of two-factor authentication, with the form for the next step."""
    factor = find_setup(user=request.user)
    context = {"factor": factor, "left": count_recovery_codes(request.user), **context}
    if factor is None:
        context.setdefault("password_form", CurrentPasswordForm())
    elif factor.confirmed_at is None:
        # Imported here, because few requests need it.
        import segno

        secret = read_secret(factor)
        context["secret"] = " ".join(secret[at : at + 4] for at in range(0, len(secret), 4))
        # Dark on white in both themes: scanners need the contrast.
        context["qr_code"] = segno.make(setup_uri(factor)).svg_data_uri(scale=5, light="#fff")
        context.setdefault("code_form", AppCodeForm())
    else:
        context.setdefault("remove_form", CodeForm(prefix="remove"))
        context.setdefault("replace_form", CodeForm(prefix="replace"))
    return answer(request, "account/second_factor.html", context, part="setup", status=status)


@sensitive_post_parameters("code")
@never_cache
@allow(GET=Permission.OWN_ACCOUNT, POST=Permission.OWN_ACCOUNT)
def second_factor(request: PageRequest) -> HttpResponse:
    """Show the QR code of a new authenticator app, and confirm the app by a code."""
    if request.method != "POST" and not request.user.has_usable_password():
        return redirect("dashboard:account")
    form = AppCodeForm(posted(request))
    if form.is_valid():
        with show_errors(form):
            codes = confirm_setup(
                user=request.user, code=form.cleaned_data["code"], session_key=request.session.session_key
            )
            return _page(request, codes=codes, status=201)
    return _page(request, status=422, code_form=form) if form.is_bound else _page(request)


@sensitive_post_parameters("password")
@sensitive_variables("form")
@never_cache
@allow(POST=Permission.OWN_ACCOUNT)
def second_factor_start(request: PageRequest) -> HttpResponse:
    """Create the secret of a new authenticator app."""
    form, status = CurrentPasswordForm(request.POST), 422
    if form.is_valid():
        try:
            check_current_password(request=request, user=request.user, password=form.cleaned_data["password"])
        except SignInRefused as refused:
            form.add_error("password", str(refused))
            status = 429 if isinstance(refused, TooManyTries) else 422
        else:
            with show_errors(form):
                start_setup(user=request.user)
                return go(request, "dashboard:second_factor")
    return _page(request, status=status, password_form=form)


def _has_code(request: PageRequest, form: CodeForm) -> bool:
    """Return True if the form has a valid code, which is used up. Counted like codes of sign-ins."""
    if not form.is_valid():
        return False
    try:
        check_second_factor(request=request, user=request.user, code=form.cleaned_data["code"])
    except SignInRefused as refused:
        form.add_error("code", str(refused))
        return False
    return True


@sensitive_post_parameters("remove-code")
@never_cache
@allow(POST=Permission.OWN_ACCOUNT)
def second_factor_remove(request: PageRequest) -> HttpResponse:
    form = CodeForm(request.POST, prefix="remove")
    if not _has_code(request, form):
        return _page(request, status=422, remove_form=form)
    remove_second_factor(user=request.user, by=request.user)
    messages.success(request, "Two-factor authentication is off.")
    return go(request, "dashboard:account")


@sensitive_post_parameters("replace-code")
@never_cache
@allow(POST=Permission.OWN_ACCOUNT)
def recovery_codes_replace(request: PageRequest) -> HttpResponse:
    """Show new recovery codes, which replace the old ones."""
    form = CodeForm(request.POST, prefix="replace")
    if not _has_code(request, form):
        return _page(request, status=422, replace_form=form)
    return _page(request, codes=replace_recovery_codes(user=request.user), status=201)


@allow(POST=Permission.ACCOUNTS)
def person_factor_remove(request: PageRequest, pk: int) -> HttpResponse:
    """Turn off two-factor authentication of another user who has lost the app and the recovery codes."""
    person = get_object_or_404(User, pk=pk)
    with show_refusal(request):
        remove_second_factor_of(person=person, by=request.user)
        messages.success(request, f"Two-factor authentication of {person.username} is off.")
    return go(request, "dashboard:person_edit", pk)
