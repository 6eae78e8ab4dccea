"""Signing in and out, and the theme: what works before anyone is known."""

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.auditing import record
from apps.accounts.permissions import Permission, allow
from apps.accounts.returning import page_of
from apps.accounts.signing_in import SignInRefused, TooManyTries, is_open, redeem_sign_in_link, sign_in_with_password
from apps.dashboard.answering import posted, wants_fragment
from apps.dashboard.context import THEMES
from apps.dashboard.forms.signing_in import SignInForm

_BACKEND = "django.contrib.auth.backends.ModelBackend"


def _next_page(request: HttpRequest) -> str:
    """Where to go afterwards: only to a page of this site."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    return page_of(request, wanted) or reverse(settings.LOGIN_REDIRECT_URL)


@login_not_required
@sensitive_post_parameters("password")
@never_cache
@allow(GET=Permission.PUBLIC, POST=Permission.PUBLIC)
def sign_in(request: HttpRequest) -> HttpResponse:
    if request.method != "POST" and wants_fragment(request):
        # A session ended while a page was open: leave the page, and come back to it rather than to its fragment.
        page = page_of(request, request.headers.get("HX-Current-URL", "")) or reverse(settings.LOGIN_REDIRECT_URL)
        unsent = {"unsent": "1"} if "unsent" in request.GET else {}
        return HttpResponseClientRedirect(f"{reverse('dashboard:sign_in')}?{urlencode({**unsent, 'next': page})}")
    if request.user.is_authenticated and request.method != "POST":
        return redirect(_next_page(request))
    form = SignInForm(posted(request))
    status, retry_after = 200, None
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                user = sign_in_with_password(request=request, **form.cleaned_data)
            except SignInRefused as refused:
                form.add_error(None, str(refused))
                retry_after = refused.retry_after if isinstance(refused, TooManyTries) else None
                status = 429 if retry_after else 422
            else:
                login(request, user, backend=_BACKEND)
                return redirect(_next_page(request))
    context = {"form": form, "next": _next_page(request), "unsent": "unsent" in request.GET}
    response = render(request, "account/sign_in.html", context, status=status)
    if retry_after:
        response["Retry-After"] = str(retry_after)
    return response


@login_not_required
@never_cache
@allow(GET=Permission.PUBLIC, POST=Permission.PUBLIC)
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """Sign in on POST only: mail scanners and link previews send GET or HEAD, which must not use up the link."""
    if request.method != "POST" and is_open(token):
        return render(request, "account/sign_in_link.html", {"spent": False})
    user = redeem_sign_in_link(token) if request.method == "POST" else None
    if user is None:
        return render(request, "account/sign_in_link.html", {"spent": True}, status=410)
    login(request, user, backend=_BACKEND)
    if not user.has_usable_password():
        messages.info(request, "You are signed in. Set a password below to sign in without a link next time.")
        return redirect("dashboard:account")
    return redirect("dashboard:home")


@allow(POST=Permission.OWN_ACCOUNT)
def sign_out(request: HttpRequest) -> HttpResponse:
    record(user=request.user, action="sign_out", target=request.user)
    logout(request)
    return redirect("dashboard:sign_in")


@login_not_required
@allow(POST=Permission.PUBLIC)
def theme(request: HttpRequest) -> HttpResponse:
    """Without JavaScript; with it the page sets the same cookie itself."""
    response = redirect(_next_page(request))
    wanted = request.POST.get("theme", "")
    if wanted in THEMES:
        response.set_cookie("theme", wanted, max_age=31_536_000, samesite="Lax", secure=request.is_secure())
    return response
