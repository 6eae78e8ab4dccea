"""The one table of who may do what, and the two ways a route names its rule.

A page is a function decorated with `allow(GET=Permission.READ, …)`; a view of the API has a dict `permissions` from
action name to Permission. Both put a rule beside the route; this table alone says which role has it, and which scope of
an API key. A route without a rule is refused to everyone.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from apps.accounts.models import ApiKey, Role, Scope


class Permission(StrEnum):
    PUBLIC = "public"  # without signing in
    MEMBER = "member"  # who one is, and how the API looks
    READ_TASKS = "read_tasks"  # see datasets, tasks and uploads
    READ_QUEUES = "read_queues"  # see queues and reviews: with READ all of them, without it one's own
    READ = "read"  # see all the rest but secrets and accounts
    OWN_ACCOUNT = "own_account"  # one's own password and keys
    VIEWS = "views"  # save filters of tables under a name, for oneself and others
    COMMENT = "comment"  # comment on, flag and score rollouts
    REVIEW = "review"  # review the items of queues
    LEAD = "lead"  # make and lead queues, adjudicate, give rewards that stand instead of the verifier's
    UPLOAD = "upload"  # datasets and tasks
    CONFIGURE = "configure"  # agents, environments, and checks of their health
    COLLECT = "collect"  # plan, steer and cancel collections
    WORKERS = "workers"  # ask workers to leave
    PAIR = "pair"  # build pair sets
    EXPORT = "export"  # write and download files
    ENDPOINTS = "endpoints"  # collect from a model server that is named by its address
    MODELS = "models"  # policy models and their secrets
    AUDIT = "audit"  # the audit log
    ACCOUNTS = "accounts"  # other people


_MEMBER = frozenset({Permission.PUBLIC, Permission.MEMBER})
_READER = _MEMBER | {Permission.READ_TASKS, Permission.READ_QUEUES, Permission.READ}
_VIEWER = _READER | {Permission.OWN_ACCOUNT, Permission.VIEWS}
# Without READ: what a blind queue hides from an annotator is shown nowhere else.
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
_ADMIN = _ENGINEER | {Permission.AUDIT, Permission.ACCOUNTS}

ROLE_PERMISSIONS: dict[str, frozenset[Permission]] = {
    Role.VIEWER: _VIEWER,
    Role.ANNOTATOR: _ANNOTATOR,
    Role.ENGINEER: _ENGINEER,
    Role.ADMIN: _ADMIN,
}

# A key may do what one of its scopes and its owner's role both may. What stands in no scope is done by people who
# signed in: otherwise a key that was stolen could make others that outlive it.
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
    """Whether this user (signed in or not) has the permission."""
    if permission is Permission.PUBLIC:
        return True
    if not getattr(user, "is_authenticated", False) or not getattr(user, "is_active", False):
        return False
    return permission in ROLE_PERMISSIONS.get(getattr(user, "role", ""), frozenset())


def key_may(api_key: ApiKey, permission: Permission) -> bool:
    """Whether one of the key's scopes has the permission; its owner's role is asked apart. A scope that is unknown has
    none."""
    return any(permission in SCOPE_PERMISSIONS.get(scope, ()) for scope in api_key.scopes)


def caller_may(user: object, api_key: object, permission: Permission) -> bool:
    """Whether this user may, here by a session or by this key."""
    return user_may(user, permission) and (not isinstance(api_key, ApiKey) or key_may(api_key, permission))


def scopes_with(permission: Permission) -> list[str]:
    """The scopes that have the permission, the narrowest first."""
    found = [scope for scope in Scope.values if permission in SCOPE_PERMISSIONS[scope]]
    return sorted(found, key=lambda scope: len(SCOPE_PERMISSIONS[scope]))


def scopes_worth_having(role: str) -> list[Scope]:
    """Those that let a key of this role do something which no smaller scope does."""
    found = []
    for scope, permissions in SCOPE_PERMISSIONS.items():
        smaller = [one for one in SCOPE_PERMISSIONS.values() if one < permissions]
        # Reading comes first: what else reads as well is worth having for what it does besides.
        reading = SCOPE_PERMISSIONS[Scope.ROLLOUTS_READ] if scope != Scope.ROLLOUTS_READ else frozenset()
        if permissions.difference(reading, *smaller) & ROLE_PERMISSIONS[role]:
            found.append(Scope(scope))
    return found


def allow(**permissions: Permission) -> Callable[[View], View]:
    """Name the permission that each HTTP method of a page needs; a method that is not named is refused."""

    def decorate(view: View) -> View:
        view.permissions = permissions  # type: ignore[attr-defined]
        # SignInMiddleware asks for this; PermissionMiddleware still guards the methods that are not public.
        view.login_required = Permission.PUBLIC not in permissions.values()  # type: ignore[attr-defined]
        return view

    return decorate
