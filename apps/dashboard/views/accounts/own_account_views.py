"""Views of the user's own account: password, API keys, two-factor authentication and sessions."""

from typing import Any

import orjson
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from apps.accounts.api_keys import NotYourKey, create_api_key, revoke_api_key
from apps.accounts.key_bindings import KeymapRefused, remap_keys
from apps.accounts.models import ApiKey, SignInMethod
from apps.accounts.permissions import Permission, allow
from apps.accounts.second_factor.authenticator_codes import needs_code
from apps.accounts.second_factor.recovery_codes import count_recovery_codes
from apps.accounts.sessions.browser_sessions import record_session, sessions_of
from apps.accounts.sessions.known_devices import remember_device
from apps.accounts.sign_in import SignInRefused, TooManyTries, check_current_password
from apps.accounts.user_accounts import ManagedByProvider, change_password, is_managed
from apps.dashboard.chrome.number_formats import count_words
from apps.dashboard.chrome.page_answers import answer, go
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.accounts.account_forms import ApiKeyForm, PasswordForm


def _page(request: PageRequest, *, part: str, status: int = 200, **context: Any) -> HttpResponse:
    person = request.user
    context = {
        "password_form": PasswordForm(person=person),
        "key_form": ApiKeyForm(prefix="key", person=person),
        "keys": person.api_keys.order_by("-id"),
        "mcp_url": request.build_absolute_uri(reverse("mcp")),
        "sessions": sessions_of(person),
        "current_session": request.session.session_key,
        "has_second_factor": needs_code(person),
        "recovery_codes": count_recovery_codes(person),
        "is_managed": is_managed(person),
        **context,
    }
    return answer(request, "account/account.html", context, part=part, status=status)


@sensitive_post_parameters()
@never_cache
@allow(GET=Permission.OWN_ACCOUNT, POST=Permission.OWN_ACCOUNT)
def account(request: PageRequest) -> HttpResponse:
    person = request.user
    if request.method != "POST":
        return _page(request, part="password")
    form = PasswordForm(request.POST, person=person)
    done, status = "changed" if person.has_usable_password() else "set", 422
    if form.is_valid():
        try:
            if "current" in form.cleaned_data:
                check_current_password(request=request, user=person, password=form.cleaned_data["current"])
            revoked = change_password(
                person=person,
                password=form.cleaned_data["password"],
                revoke_keys=form.cleaned_data.get("revoke_keys", False),
                by=person,
                session_key=request.session.session_key,
            )
        except SignInRefused as wrong:
            form.add_error("current", str(wrong))
            status = 429 if isinstance(wrong, TooManyTries) else 422
        except ValidationError as weak:
            form.add_error("password", weak)
        except ManagedByProvider as refused:
            form.add_error(None, str(refused))
        else:
            update_session_auth_hash(request, person)  # changes the key of the session
            record_session(request, person, SignInMethod.PASSWORD)
            keys = f" {count_words(revoked, 'API key is', 'API keys are')} revoked." if revoked else ""
            messages.success(request, f"Your password is {done}. Your other sessions are signed out.{keys}")
            response = go(request, "dashboard:account")
            remember_device(response, person)
            return response
    return _page(request, part="password", status=status, password_form=form)


@allow(POST=Permission.OWN_ACCOUNT)
def keyboard(request: PageRequest) -> HttpResponse:
    """Save the user's keyboard shortcuts, sent as JSON."""
    try:
        remap_keys(user=request.user, keymap=orjson.loads(request.body))
    except orjson.JSONDecodeError:
        return HttpResponse("That is not JSON.", status=422, content_type="text/plain")
    except KeymapRefused as refusal:
        return HttpResponse(str(refusal), status=422, content_type="text/plain")
    return HttpResponse(status=204)


@sensitive_variables("token")
@never_cache
@allow(POST=Permission.OWN_ACCOUNT)
def key_create(request: PageRequest) -> HttpResponse:
    """Create a key and show it once."""
    person = request.user
    form = ApiKeyForm(request.POST, prefix="key", person=person)
    if not form.is_valid():
        return _page(request, part="keys", status=422, key_form=form)
    _, token = create_api_key(
        user=person,
        name=form.cleaned_data["name"],
        scopes=form.cleaned_data["scopes"],
        expires_at=form.expires_at(),
        by=person,
    )
    return _page(request, part="keys", status=201, token=token)


@allow(POST=Permission.OWN_ACCOUNT)
def key_revoke(request: PageRequest, pk: int) -> HttpResponse:
    api_key = get_object_or_404(ApiKey, pk=pk)
    try:
        revoke_api_key(api_key=api_key, user=request.user)
    except NotYourKey as refused:
        raise PermissionDenied(str(refused)) from None
    messages.success(request, f"Key “{api_key.name}” revoked.")
    if api_key.user_id != request.user.pk:
        return go(request, "dashboard:person_edit", api_key.user_id)
    return go(request, "dashboard:account")
