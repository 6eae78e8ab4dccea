"""List the sessions of a user, record their use, and end them."""

import threading
import time
from contextlib import suppress

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.db import DatabaseError, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.audit_log import record
from apps.accounts.client_address import client_address
from apps.accounts.disk_space import skip_when_full
from apps.accounts.job_declarations import background_job
from apps.accounts.models import BrowserSession, SignInLink, SignInMethod, User
from apps.accounts.permissions import Permission, user_may
from apps.accounts.sessions.device_names import name_device
from apps.gym.request_refusals import Refusal
from apps.gym.storable import clean_line

SEEN_SECONDS = 60
"""How precise `last_seen_at` is. Limits writes for a session in constant use."""
_MOST_REMEMBERED = 10_000
_SWEPT_AT_ONCE = 500


class NotYourSession(Refusal, status=403, code="not-yours"):
    """Raised if a user without permission to edit accounts ends the session of another user."""


class _LastWrites:
    """When this process last recorded the use of each session. Thread-safe."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._lock = threading.Lock()

    def is_due(self, key: str) -> bool:
        """Return True, and note the time, if the use of the session has not been recorded recently."""
        now = time.monotonic()
        with self._lock:
            if now - self._times.get(key, -SEEN_SECONDS) < SEEN_SECONDS:
                return False
            if len(self._times) >= _MOST_REMEMBERED:
                self._times = {one: at for one, at in self._times.items() if now - at < SEEN_SECONDS}
            self._times[key] = now
        return True


_writes = _LastWrites()


def record_session(request: HttpRequest, user: User, method: SignInMethod) -> None:
    """Record the session of this request, which the caller has just opened for the user."""
    if request.session.session_key is None:
        request.session.save()
    _store(request, user, method=method.value)


def touch_session(request: HttpRequest) -> None:
    """Record that the session of this request is in use, at most once a minute."""
    key = request.session.session_key
    if key and SESSION_KEY in request.session and _writes.is_due(key) and isinstance(request.user, User):
        # An optional write must not fail a request whose work is done.
        with suppress(DatabaseError), skip_when_full():
            _store(request, request.user)


def _store(request: HttpRequest, user: User, **changes: str) -> None:
    key = request.session.session_key
    assert key is not None
    _writes.is_due(key)
    seen = {
        "device": clean_line(name_device(request.headers.get("User-Agent", "")), 200),
        "address": client_address(request),
        "last_seen_at": timezone.now(),
        **changes,
    }
    if BrowserSession.objects.filter(session_id=key, user=user).update(**seen):
        return
    with transaction.atomic():
        # Do not re-create the row of a session that was ended concurrently.
        if Session.objects.select_for_update().filter(pk=key).exists():
            BrowserSession.objects.update_or_create(session_id=key, defaults={"user": user, **seen})


def sessions_of(user: User) -> QuerySet[BrowserSession]:
    """Return the user's sessions that have not expired, most recently used first."""
    return BrowserSession.objects.filter(user=user, session__expire_date__gt=timezone.now()).order_by("-last_seen_at")


def is_session_open(key: str | None) -> bool:
    """Return True if the session has neither ended nor expired. For connections that stay open."""
    return Session.objects.filter(pk=key, expire_date__gt=timezone.now()).exists()


@transaction.atomic
def end_session(*, session: BrowserSession, user: User | None) -> None:
    """End a session. `user` is None for the operator. Raise NotYourSession."""
    if user is not None and session.user_id != user.pk and not user_may(user, Permission.ACCOUNTS):
        raise NotYourSession("Only its owner or an admin can end this session.")
    record(user=user, action="session.end", target=session, owner=session.user.username, device=session.device)
    Session.objects.filter(pk=session.session_id).delete()


@transaction.atomic
def end_sessions_of(*, person: User, by: User | None, keep: str | None = None) -> int:
    """End the sessions of a user, except the one with the key `keep`, and delete unused sign-in links.

    Return how many sessions there were.
    """
    SignInLink.objects.filter(user=person, used_at=None).delete()
    ended = BrowserSession.objects.filter(user=person).exclude(session_id=keep or "")
    keys = list(ended.values_list("session_id", flat=True))
    if keys:
        Session.objects.filter(pk__in=keys).delete()
        record(user=by, action="session.end_all", target=person, sessions=len(keys))
    return len(keys)


@background_job(every=600.0, on_full_disk=True)
def sweep_sessions() -> bool:
    """Background job: delete some expired sessions. Return True if there were any."""
    some = Session.objects.filter(expire_date__lt=timezone.now()).values_list("pk", flat=True)
    return Session.objects.filter(pk__in=list(some[:_SWEPT_AT_ONCE])).delete()[0] > 0
