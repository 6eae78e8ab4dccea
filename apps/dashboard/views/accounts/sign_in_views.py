"""Signing in by password or link, signing out, and the theme: pages without a signed-in user."""

from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.audit_log import record
from apps.accounts.models import SignInMethod, User
from apps.accounts.permissions import Permission, allow
from apps.accounts.return_page import landing_page, page_of
from apps.accounts.sign_in import SignInRefused, TooManyTries, is_open, redeem_sign_in_link, sign_in_with_password
from apps.dashboard.chrome.page_answers import posted, wants_fragment
from apps.dashboard.chrome.page_context import THEMES
from apps.dashboard.forms.accounts.account_forms import SignInForm
from apps.dashboard.views.accounts.sign_in_steps import (
    continue_sign_in,
    remember_page,
    remembered_page,
    render_sign_in,
    wanted_page,
)


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
    page = wanted_page(request)
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
            return continue_sign_in(request, user, SignInMethod.PASSWORD, page)
    response = render_sign_in(request, form, page, status=status)
    remember_page(response, page)
    if retry_after:
        response["Retry-After"] = str(retry_after)
    return response


@login_not_required
@never_cache
@allow(GET=Permission.PUBLIC, POST=Permission.PUBLIC)
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    """Sign in on POST only: mail scanners and link previews send GET or HEAD, which must not use up the link."""
    page = wanted_page(request)
    if request.method != "POST" and is_open(token):
        return render(request, "account/sign_in_link.html", {"spent": False, "next": page})
    user = redeem_sign_in_link(token) if request.method == "POST" else None
    if user is None:
        return render(request, "account/sign_in_link.html", {"spent": True, "next": page}, status=410)
    if not user.has_usable_password():
        offer = '<a href="{}">Set a password</a> to sign in without a link next time.'
        messages.info(request, format_html(offer, reverse("dashboard:account") + "#password"))
    return continue_sign_in(request, user, SignInMethod.LINK, page or remembered_page(request))


@allow(POST=Permission.OWN_ACCOUNT)
def sign_out(request: HttpRequest) -> HttpResponse:
    record(user=request.user, action="sign_out", target=request.user)
    logout(request)
    return redirect("dashboard:sign_in")


@login_not_required
@allow(POST=Permission.PUBLIC)
def theme(request: HttpRequest) -> HttpResponse:
    """Set the theme without JavaScript; with it, the page sets the same cookie itself."""
    response = redirect(wanted_page(request) or "dashboard:home")
    wanted = request.POST.get("theme", "")
    if wanted in THEMES:
        response.set_cookie("theme", wanted, max_age=31_536_000, samesite="Lax", secure=request.is_secure())
    return response
