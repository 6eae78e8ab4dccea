"""Permissions by role and API key scope, and how routes declare the permission they need.

Pages are functions decorated with `allow(GET=Permission.READ, …)`. API views have a dict `permissions` from action name
to Permission. Routes without a declaration reject every request.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from apps.accounts.models import ApiKey, Role, Scope


class Permission(StrEnum):
    PUBLIC = "public"  # without signing in
    MEMBER = "member"  # see your own identity and the API's schema
    READ_TASKS = "read_tasks"  # see datasets, tasks and uploads
    READ_QUEUES = "read_queues"  # see queues and reviews; without READ, only your own
    READ = "read"  # see everything else except secrets and accounts
    OWN_ACCOUNT = "own_account"  # change your own password and API keys
    VIEWS = "views"  # save table views, private or shared
    COMMENT = "comment"  # comment on, flag and score rollouts
    REVIEW = "review"  # review the items of queues
    LEAD = "lead"  # create and manage queues, adjudicate, override rewards
    UPLOAD = "upload"  # change datasets and tasks
    CONFIGURE = "configure"  # change agents, environments, alerts and trackers, see and change trace destinations
    COLLECT = "collect"  # plan, control and cancel collections
    WORKERS = "workers"  # drain workers
    PAIR = "pair"  # build pair sets
    EXPORT = "export"  # create and download exports
    ENDPOINTS = "endpoints"  # collect rollouts from any model server, given its URL
    MODELS = "models"  # change policy models and their secrets
    RETENTION = "retention"  # see disk use, delete data by retention rules
    AUDIT = "audit"  # see the audit log
    ACCOUNTS = "accounts"  # manage users


_MEMBER = frozenset({Permission.PUBLIC, Permission.MEMBER})
_READER = _MEMBER | {Permission.READ_TASKS, Permission.READ_QUEUES, Permission.READ}
_VIEWER = _READER | {Permission.OWN_ACCOUNT, Permission.VIEWS}
# Annotators lack READ: data that a blind queue hides must not be visible on other pages.
_ANNOTATOR = _MEMBER | {Permission.OWN_ACCOUNT, Permission.READ_QUEUES, Permission.REVIEW}
_ENGINEER = _VIEWER | {
    Permission.COMMENT,
    Permission.REVIEW,
    Permission.LEAD,
    Permission.UPLOAD,
    Permission.CONFIGURE,
    Permission.COLLECT,
    Permission.WORKERS,
    Permission.PAIR,
    Permission.EXPORT,
    Permission.ENDPOINTS,
    Permission.MODELS,
}
_ADMIN = _ENGINEER | {Permission.RETENTION, Permission.AUDIT, Permission.ACCOUNTS}

ROLE_PERMISSIONS: dict[str, frozenset[Permission]] = {
    Role.VIEWER: _VIEWER,
    Role.ANNOTATOR: _ANNOTATOR,
    Role.ENGINEER: _ENGINEER,
    Role.ADMIN: _ADMIN,
}

# A request with an API key needs the permission twice: from the role of the owner and from a scope of the key. No scope
# has the following permissions. Otherwise a stolen key could create more keys.
SESSION_ONLY = frozenset({Permission.OWN_ACCOUNT, Permission.ACCOUNTS})
SCOPE_PERMISSIONS: dict[str, frozenset[Permission]] = {
    Scope.ROLLOUTS_READ: _READER,
    Scope.TASKS_WRITE: _MEMBER | {Permission.READ_TASKS, Permission.UPLOAD},
    Scope.ROLLOUTS_RUN: _READER | {Permission.COLLECT, Permission.ENDPOINTS},
    Scope.ANNOTATE: _READER | {Permission.COMMENT, Permission.REVIEW, Permission.LEAD, Permission.VIEWS},
    Scope.EXPORT: _READER | {Permission.PAIR, Permission.EXPORT},
    Scope.ADMIN: frozenset(Permission) - SESSION_ONLY,
}

View = TypeVar("View", bound=Callable[..., Any])


def user_may(user: object, permission: Permission) -> bool:
    """Return True if this user, anonymous or not, has the permission."""
    if permission is Permission.PUBLIC:
        return True
    if not getattr(user, "is_authenticated", False) or not getattr(user, "is_active", False):
        return False
    return permission in ROLE_PERMISSIONS.get(getattr(user, "role", ""), frozenset())


def key_may(api_key: ApiKey, permission: Permission) -> bool:
    """Return True if a scope of the key has the permission. The role of its owner is checked separately.

    Unknown scopes have no permissions.
    """
    return any(permission in SCOPE_PERMISSIONS.get(scope, ()) for scope in api_key.scopes)


def caller_may(user: object, api_key: object, permission: Permission) -> bool:
    """Return True if the user has the permission and, for a request with an API key, the key has it too."""
    return user_may(user, permission) and (not isinstance(api_key, ApiKey) or key_may(api_key, permission))


def scopes_with(permission: Permission) -> list[str]:
    """Return the scopes with the permission, narrowest first."""
    found = [scope for scope in Scope.values if permission in SCOPE_PERMISSIONS[scope]]
    return sorted(found, key=lambda scope: len(SCOPE_PERMISSIONS[scope]))


def useful_scopes(role: str) -> list[Scope]:
    """Return the scopes to offer to users of this role.

    A scope is left out if it adds nothing for this role to its smaller scopes and to `rollouts:read`.
    """
    found = []
    for scope, permissions in SCOPE_PERMISSIONS.items():
        smaller_scopes = [other for other in SCOPE_PERMISSIONS.values() if other < permissions]
        read_permissions = SCOPE_PERMISSIONS[Scope.ROLLOUTS_READ] if scope != Scope.ROLLOUTS_READ else frozenset()
        if permissions.difference(read_permissions, *smaller_scopes) & ROLE_PERMISSIONS[role]:
            found.append(Scope(scope))
    return found


def allow(**permissions: Permission) -> Callable[[View], View]:
    """Declare the permission for each HTTP method of a page; other methods are rejected."""

    def decorate(view: View) -> View:
        view.permissions = permissions  # type: ignore[attr-defined]
        # If one method is public, SignInMiddleware skips the page. PermissionMiddleware still checks each method.
        view.login_required = Permission.PUBLIC not in permissions.values()  # type: ignore[attr-defined]
        return view

    return decorate
