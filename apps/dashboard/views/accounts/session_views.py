"""End sessions: one's own, and for admins, all of a user."""

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404

from apps.accounts.models import BrowserSession, User
from apps.accounts.permissions import Permission, allow
from apps.accounts.sessions.browser_sessions import NotYourSession, end_session, end_sessions_of
from apps.dashboard.chrome.number_formats import count_words
from apps.dashboard.chrome.page_answers import go
from apps.dashboard.chrome.page_request import PageRequest


@allow(POST=Permission.OWN_ACCOUNT)
def session_end(request: PageRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(BrowserSession.objects.select_related("user"), pk=pk)
    try:
        end_session(session=session, user=request.user)
    except NotYourSession as refused:
        raise PermissionDenied(str(refused)) from None
    if session.session_id == request.session.session_key:
        request.session.flush()
        return go(request, "dashboard:sign_in")
    messages.success(request, f"Revoked the session of {session.device}.")
    if session.user_id != request.user.pk:
        return go(request, "dashboard:person_edit", session.user_id)
    return go(request, "dashboard:account")


@allow(POST=Permission.OWN_ACCOUNT)
def sessions_end(request: PageRequest) -> HttpResponse:
    """End all sessions of the user except this one."""
    ended = end_sessions_of(person=request.user, by=request.user, keep=request.session.session_key)
    messages.success(request, f"Revoked {count_words(ended, 'other session', 'other sessions')}.")
    return go(request, "dashboard:account")


@allow(POST=Permission.ACCOUNTS)
def person_sessions_end(request: PageRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    ended = end_sessions_of(person=person, by=request.user, keep=request.session.session_key)
    messages.success(request, f"Revoked {count_words(ended, 'session', 'sessions')} of {person.username}.")
    return go(request, "dashboard:person_edit", pk)
