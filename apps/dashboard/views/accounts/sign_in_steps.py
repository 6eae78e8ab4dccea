"""Steps that all ways to sign in share: ask for the second factor, open the session, redirect to the page."""

from datetime import timedelta

from django.conf import settings
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.encoding import iri_to_uri
from django.utils.http import urlencode

from apps.accounts.models import SignInMethod, User
from apps.accounts.return_page import landing_page, page_of
from apps.accounts.second_factor.authenticator_codes import needs_code
from apps.accounts.sessions.browser_sessions import record_session
from apps.accounts.sessions.known_devices import remember_device
from apps.dashboard.forms.accounts.account_forms import SignInForm

_BACKEND = "django.contrib.auth.backends.ModelBackend"
# Remembers the page for visitors who continue with a sign-in link, which names no page.
_PAGE_COOKIE = "next_page"
_PAGE_COOKIE_SECONDS = 60 * 60
# Proves the first step of a sign-in to the second one.
_STEP_COOKIE = "sign_in_step"
_STEP_TIME = timedelta(minutes=10)
_STEP_SALT = "apps.dashboard.views.accounts.sign_in_steps"


def wanted_page(request: HttpRequest) -> str:
    """Return the page of this site that the request names as `next`, or an empty string."""
    return page_of(request, request.POST.get("next") or request.GET.get("next") or "")


def remembered_page(request: HttpRequest) -> str:
    return request.COOKIES.get(_PAGE_COOKIE, "")


def remember_page(response: HttpResponse, page: str) -> None:
    """Remember the requested page in a cookie until the visitor has signed in; an empty page removes it."""
    path = reverse("dashboard:sign_in")
    if not page:
        response.delete_cookie(_PAGE_COOKIE, path=path, samesite="Lax")
        return
    response.set_cookie(
        _PAGE_COOKIE,
        iri_to_uri(page),
        max_age=_PAGE_COOKIE_SECONDS,
        path=path,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def render_sign_in(request: HttpRequest, form: SignInForm, page: str, *, status: int = 200) -> HttpResponse:
    context = {
        "form": form,
        "next": page,
        "unsent": "unsent" in request.GET,
        "provider": settings.OIDC.name if settings.OIDC.provider_id else "",
    }
    return render(request, "account/sign_in.html", context, status=status)


def continue_sign_in(request: HttpRequest, user: User, method: SignInMethod, page: str) -> HttpResponse:
    """Ask for a code if the user has an authenticator app, otherwise open the session."""
    if not needs_code(user):
        return open_session(request, user, method, page)
    response = redirect(f"{reverse('dashboard:sign_in_code')}?{urlencode({'next': page})}")
    response.set_signed_cookie(
        _STEP_COOKIE,
        f"{user.pk}:{method.value}:{_fingerprint(user)}",
        salt=_STEP_SALT,
        max_age=_STEP_TIME,
        path=reverse("dashboard:sign_in"),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


def find_first_step(request: HttpRequest) -> tuple[User, SignInMethod] | None:
    """Return the user who has passed the first step in this browser, and how. None if the step has expired."""
    signed = request.get_signed_cookie(_STEP_COOKIE, default="", salt=_STEP_SALT, max_age=_STEP_TIME)
    if not signed:
        return None
    pk, method, fingerprint = signed.split(":")
    user = User.objects.filter(pk=pk, is_active=True).first()
    if user is None or not constant_time_compare(fingerprint, _fingerprint(user)):
        return None
    return user, SignInMethod(method)


def _fingerprint(user: User) -> str:
    # Another password, and another sign-in, end the step.
    return salted_hmac(_STEP_SALT, f"{user.password}:{user.last_login}", algorithm="sha256").hexdigest()


def open_session(
    request: HttpRequest, user: User, method: SignInMethod, page: str, *, lifetime: timedelta | None = None
) -> HttpResponse:
    """Open the session and redirect the user to their page."""
    # Nothing that was stored before signing in belongs to the user.
    request.session.flush()
    login(request, user, backend=_BACKEND)
    if lifetime is not None:
        request.session.set_expiry(lifetime)
        request.session.save()
    record_session(request, user, method)
    response = redirect(landing_page(request, user, page))
    response.delete_cookie(_STEP_COOKIE, path=reverse("dashboard:sign_in"), samesite="Lax")
    remember_page(response, "")
    remember_device(response, user)
    return response
