"""Signing in and out, and the theme: pages without a signed-in user."""

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.encoding import iri_to_uri
from django.utils.html import format_html
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.audit_log import record
from apps.accounts.known_devices import remember_device
from apps.accounts.models import User
from apps.accounts.permissions import Permission, allow
from apps.accounts.return_page import landing_page, page_of
from apps.accounts.sign_in import SignInRefused, TooManyTries, is_open, redeem_sign_in_link, sign_in_with_password
from apps.dashboard.chrome.page_answers import posted, wants_fragment
from apps.dashboard.chrome.page_context import THEMES
from apps.dashboard.forms.account_forms import SignInForm

_BACKEND = "django.contrib.auth.backends.ModelBackend"


# Remembers the page for visitors who continue with a sign-in link, which names no page.
_PAGE_COOKIE = "next_page"
_PAGE_COOKIE_SECONDS = 60 * 60


def _wanted_page(request: HttpRequest) -> str:
    """Return the page of this site that the request names as `next`, or an empty string."""
    return page_of(request, request.POST.get("next") or request.GET.get("next") or "")


def _remember_page(response: HttpResponse, page: str) -> None:
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


def _enter(request: HttpRequest, user: User, wanted: str) -> HttpResponse:
    """Open the session and redirect the user to their page."""
    login(request, user, backend=_BACKEND)
    response = redirect(landing_page(request, user, wanted))
    _remember_page(response, "")
    remember_device(response, user)
    return response


@login_not_required
@sensitive_post_parameters("password")
@never_cache
@allow(GET=Permission.PUBLIC, POST=Permission.PUBLIC)
def sign_in(request: HttpRequest) -> HttpResponse:
    if request.method != "POST" and wants_fragment(request):
        # The session ended while a page was open: return to that page, not to its fragment.
        page = page_of(request, request.headers.get("HX-Current-URL", "")) or reverse("dashboard:home")
        unsent = {"unsent": "1"} if "unsent" in request.GET else {}
        return HttpResponseClientRedirect(f"{reverse('dashboard:sign_in')}?{urlencode({**unsent, 'next': page})}")
    page = _wanted_page(request)
    if isinstance(request.user, User) and request.method != "POST":
        return redirect(landing_page(request, request.user, page))
    form = SignInForm(posted(request))
    status, retry_after = 422 if form.is_bound else 200, None
    if form.is_valid():
        try:
            user = sign_in_with_password(request=request, **form.cleaned_data)
        except SignInRefused as refused:
            form.add_error(None, str(refused))
            retry_after = refused.retry_after if isinstance(refused, TooManyTries) else None
            status = 429 if retry_after else 422
        else:
            return _enter(request, user, page)
    context = {"form": form, "next": page, "unsent": "unsent" in request.GET}
    response = render(request, "account/sign_in.html", context, status=status)
    _remember_page(response, page)
    if retry_after:
        response["Retry-After"] = str(retry_after)
    return response


@login_not_required
@never_cache
@allow(GET=Permission.PUBLIC, POST=Permission.PUBLIC)
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """Sign in on POST only: mail scanners and link previews send GET or HEAD, which must not use up the link."""
    page = _wanted_page(request)
    if request.method != "POST" and is_open(token):
        return render(request, "account/sign_in_link.html", {"spent": False, "next": page})
    user = redeem_sign_in_link(token) if request.method == "POST" else None
    if user is None:
        return render(request, "account/sign_in_link.html", {"spent": True, "next": page}, status=410)
    if not user.has_usable_password():
        offer = '<a href="{}">Set a password</a> to sign in without a link next time.'
        messages.info(request, format_html(offer, reverse("dashboard:account") + "#password"))
    return _enter(request, user, page or request.COOKIES.get(_PAGE_COOKIE, ""))


@allow(POST=Permission.OWN_ACCOUNT)
def sign_out(request: HttpRequest) -> HttpResponse:
    record(user=request.user, action="sign_out", target=request.user)
    logout(request)
    return redirect("dashboard:sign_in")


@login_not_required
@allow(POST=Permission.PUBLIC)
def theme(request: HttpRequest) -> HttpResponse:
    """Set the theme without JavaScript; with it, the page sets the same cookie itself."""
    response = redirect(_wanted_page(request) or "dashboard:home")
    wanted = request.POST.get("theme", "")
    if wanted in THEMES:
        response.set_cookie("theme", wanted, max_age=31_536_000, samesite="Lax", secure=request.is_secure())
    return response
