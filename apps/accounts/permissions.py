"""The one table of who may do what, and the two ways a route names its rule.

A page is a function decorated with `allow(GET=Permission.READ, …)`; a view of the API has a dict `permissions` from
action name to Permission. Both put a rule beside the route; this table alone says which role has it. A route without
a rule is refused to everyone.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from apps.accounts.models import Role


class Permission(StrEnum):
    PUBLIC = "public"  # without signing in
    READ = "read"  # see everything but secrets and accounts
    OWN_ACCOUNT = "own_account"  # one's own password and keys
    COMMENT = "comment"  # say something of a rollout
    UPLOAD = "upload"  # datasets and tasks
    CONFIGURE = "configure"  # agents, environments, and checks of their health
    COLLECT = "collect"  # plan, steer and cancel collections
    WORKERS = "workers"  # ask workers to leave
    PAIR = "pair"  # build pair sets
    EXPORT = "export"  # write and download files
    MODELS = "models"  # policy models and their secrets
    ACCOUNTS = "accounts"  # other people


_VIEWER = frozenset({Permission.PUBLIC, Permission.READ, Permission.OWN_ACCOUNT})
_ANNOTATOR = _VIEWER | {Permission.COMMENT}
_ENGINEER = _ANNOTATOR | {
    Permission.UPLOAD,
    Permission.CONFIGURE,
    Permission.COLLECT,
    Permission.WORKERS,
    Permission.PAIR,
    Permission.EXPORT,
    Permission.MODELS,
}
_ADMIN = _ENGINEER | {Permission.ACCOUNTS}

ROLE_PERMISSIONS: dict[str, frozenset[Permission]] = {
    Role.VIEWER: _VIEWER,
    Role.ANNOTATOR: _ANNOTATOR,
    Role.ENGINEER: _ENGINEER,
    Role.ADMIN: _ADMIN,
}

View = TypeVar("View", bound=Callable[..., Any])


def user_may(user: object, permission: Permission) -> bool:
    """Whether this user (signed in or not) has the permission."""
    if permission is Permission.PUBLIC:
        return True
    if not getattr(user, "is_authenticated", False) or not getattr(user, "is_active", False):
        return False
    return permission in ROLE_PERMISSIONS.get(getattr(user, "role", ""), frozenset())


def allow(**permissions: Permission) -> Callable[[View], View]:
    """Name the permission that each HTTP method of a page needs; a method that is not named is refused."""

    def decorate(view: View) -> View:
        view.permissions = permissions  # type: ignore[attr-defined]
        # LoginRequiredMiddleware asks for this; PermissionMiddleware still guards the methods that are not public.
        view.login_required = Permission.PUBLIC not in permissions.values()  # type: ignore[attr-defined]
        return view

    return decorate
