"""The second step of signing in, single sign-on, and accepting an invitation."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts.audit_log import record
from apps.accounts.invitations import accept_invitation, find_invitation
from apps.accounts.models import Role, SignInMethod
from apps.accounts.permissions import Permission, allow
from apps.accounts.return_page import page_of
from apps.accounts.sessions.sign_in_limits import count_provider_request
from apps.accounts.sign_in import SignInRefused, TooManyTries, check_second_factor
from apps.dashboard.chrome.page_answers import posted
from apps.dashboard.forms.accounts.account_forms import SignInForm
from apps.dashboard.forms.accounts.sign_in_forms import AcceptForm, CodeForm
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.views.accounts.sign_in_steps import find_first_step, open_session, render_sign_in, wanted_page

# Longer than a sign-in at the provider takes. Sessions of visitors who never come back are then deleted.
_STATE_TIME = timedelta(minutes=15)


@login_not_required
@sensitive_post_parameters("code")
@never_cache
@allow(GET=Permission.PUBLIC, POST=Permission.PUBLIC)
def sign_in_code(request: HttpRequest) -> HttpResponse:
    """Ask for a code of the authenticator app, after the password or link."""
    page = wanted_page(request)
    step = find_first_step(request)
    if step is None:
        if not request.user.is_authenticated:
            messages.info(request, "Your sign-in has expired. Sign in again, and enter the code within 10 minutes.")
        return redirect("dashboard:sign_in")
    user, method = step
    form = CodeForm(posted(request))
    status, retry_after = 422 if form.is_bound else 200, None
    if form.is_valid():
        try:
            check_second_factor(request=request, user=user, code=form.cleaned_data["code"])
        except SignInRefused as refused:
            form.add_error("code", str(refused))
            retry_after = refused.retry_after if isinstance(refused, TooManyTries) else None
            status = 429 if retry_after else 422
        else:
            return open_session(request, user, method, page)
    response = render(request, "account/sign_in_code.html", {"form": form, "next": page}, status=status)
    if retry_after:
        response["Retry-After"] = str(retry_after)
    return response


def _require_provider() -> None:
    if not settings.OIDC.provider_id:
        raise Http404


def _show_failure(request: HttpRequest, message: str, *, status: int) -> HttpResponse:
    messages.error(request, message)
    return render_sign_in(request, SignInForm(), "", status=status)


def _refuse_many(request: HttpRequest, seconds: int) -> HttpResponse:
    response = _show_failure(request, "Too many sign-ins from your network. Try again later.", status=429)
    response["Retry-After"] = str(seconds)
    return response


@login_not_required
@never_cache
@allow(GET=Permission.PUBLIC)
def oidc_start(request: HttpRequest) -> HttpResponseBase:
    """Redirect to the identity provider.

    GET, because the content security policy forbids a form to end at another site. Other sites can cause such a
    redirect too, which only signs users in as themselves.
    """
    _require_provider()
    # Imported here, because most installations have no identity provider.
    from apps.accounts.single_sign_on.oidc_protocol import ProviderFailed, start_sign_in

    if seconds := count_provider_request(request):
        return _refuse_many(request, seconds)
    if not request.user.is_authenticated:
        request.session.set_expiry(_STATE_TIME)
    try:
        return start_sign_in(request, wanted_page(request))
    except ProviderFailed as failed:
        record(user=None, action="sign_in.fail", request=request, cause=failed.cause)
        return _show_failure(request, str(failed), status=503)


@login_not_required
@never_cache
@allow(GET=Permission.PUBLIC)
def oidc_callback(request: HttpRequest) -> HttpResponse:
    """Sign in the user whom the identity provider sent back."""
    _require_provider()
    from apps.accounts.single_sign_on.oidc_protocol import ProviderFailed, finish_sign_in
    from apps.accounts.single_sign_on.provider_sign_in import sign_in_with_claims

    if seconds := count_provider_request(request):
        return _refuse_many(request, seconds)
    try:
        identified = finish_sign_in(request)
        user = sign_in_with_claims(request=request, claims=identified.claims)
    except ProviderFailed as failed:
        record(user=None, action="sign_in.fail", request=request, cause=failed.cause)
        return _show_failure(request, str(failed), status=403)
    except SignInRefused as refused:
        return _show_failure(request, str(refused), status=403)
    lifetime = timedelta(hours=settings.OIDC.session_hours)
    page = page_of(request, identified.page)
    return open_session(request, user, SignInMethod.PROVIDER, page, lifetime=lifetime)


@login_not_required
@sensitive_post_parameters("password", "again")
@never_cache
@allow(GET=Permission.PUBLIC, POST=Permission.PUBLIC)
def invitation_accept(request: HttpRequest, token: str) -> HttpResponse:
    """Let an invited user choose a name and a password. Opening the page does not use up the invitation."""
    invitation = find_invitation(token)
    form = AcceptForm(posted(request))
    context: dict[str, Any] = {"form": form, "invitation": invitation}
    if invitation is None:
        return render(request, "account/invitation.html", context, status=410)
    context["role"] = Role(invitation.role).label
    if form.is_valid():
        given = {name: form.cleaned_data[name] for name in ("username", "password")}
        with show_errors(form):
            user = accept_invitation(token=token, **given)
            return open_session(request, user, SignInMethod.INVITATION, "")
    return render(request, "account/invitation.html", context, status=422 if form.is_bound else 200)
