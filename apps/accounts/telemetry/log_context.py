"""Ids for log records: of the current request and its user, or of the worker and its current rollout."""

from contextvars import ContextVar
from typing import Any, Protocol

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from apps.accounts.telemetry.current_request import CURRENT_REQUEST, request_id_of


class LoggedRollout(Protocol):
    """The rollout that a task of a worker runs, for example its claim."""

    @property
    def rollout_id(self) -> int: ...

    @property
    def collection_id(self) -> int: ...


CURRENT_ROLLOUT: ContextVar[LoggedRollout | None] = ContextVar("current rollout", default=None)


class _Process:
    """The worker of this process: the id of its lease, 0 without one."""

    worker_id = 0


def set_worker(worker_id: int) -> None:
    """Set the worker id of all log records that belong to no request."""
    _Process.worker_id = worker_id


def read_context(request: HttpRequest | None = None) -> dict[str, Any]:
    """Return the known ids: `request_id` and `user_id`, or `worker_id`, `rollout_id` and `collection_id`.

    `request` is that of the record, by default the current one. Makes no query.
    """
    request = request or CURRENT_REQUEST.get()
    if request is not None:
        found: dict[str, Any] = {"request_id": request_id_of(request), "user_id": _user_id(request)}
    else:
        rollout = CURRENT_ROLLOUT.get()
        found = {"worker_id": _Process.worker_id}
        if rollout is not None:
            found |= {"rollout_id": rollout.rollout_id, "collection_id": rollout.collection_id}
    return {name: value for name, value in found.items() if value}


def _user_id(request: HttpRequest) -> int | None:
    """Return the id of the user if it was already loaded: a lazy user would query the session."""
    user = request.__dict__.get("user")
    if isinstance(user, SimpleLazyObject):
        user = getattr(request, "_cached_user", None)
    found: int | None = getattr(user, "pk", None)
    return found
