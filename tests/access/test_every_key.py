"""API route × scope × role × method, from the URL configuration itself: what a key opens, and what no key opens."""

import pytest
from asgiref.sync import async_to_sync
from channels.testing import WebsocketCommunicator
from django.test import Client

from apps.accounts.api_keys import create_api_key
from apps.accounts.models import ApiKey, Role, Scope, User
from apps.accounts.permissions import (
    ROLE_PERMISSIONS,
    SCOPE_PERMISSIONS,
    SESSION_ONLY,
    Permission,
    scopes_with,
    useful_scopes,
)
from gymweb.asgi import application
from tests.access.routes import METHODS, Route, every_route, every_socket
from tests.access.test_every_route import ADMITTED, NO_METHOD, REFUSED, seen
from tests.deadlines import DEADLINE
from tests.factories import make_user

API = [route for route in every_route() if route.is_api]
PAGES = [route for route in every_route() if not route.is_api]
UNSAFE = ["POST", "PUT", "PATCH", "DELETE"]
LEAST = (Role.VIEWER, Scope.EXPORT)
# Each scope with the role that has everything; each role with the scope that has everything; and the two that meet
# in what a viewer may not.
PAIRS = [
    *((Role.ADMIN, scope) for scope in Scope.values),
    *((role, Scope.ADMIN) for role in Role.values if role != Role.ADMIN),
    LEAST,
    (Role.ANNOTATOR, Scope.ROLLOUTS_RUN),
]


def key_of(user: User, *scopes: str) -> Client:
    """A program: no cookie but what it is given, and CSRF checked like a browser's would be."""
    _, token = create_api_key(user=user, name="walk", scopes=scopes)
    return Client(headers={"Authorization": f"Bearer {token}"}, enforce_csrf_checks=True)


def expected(route: Route, role: str, scope: str, method: str) -> str:
    permission = route.rules.get(method)
    if permission is None:
        return NO_METHOD
    return ADMITTED if permission in ROLE_PERMISSIONS[role] & SCOPE_PERMISSIONS[scope] else REFUSED


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize(("role", "scope"), PAIRS)
def test_a_key_opens_what_its_scope_and_the_role_of_its_owner_both_may(role, scope):
    client = key_of(make_user(role), scope)
    wrong = []
    is_full = (role, scope) == (Role.ADMIN, Scope.ADMIN)
    known: set[Permission] = set()
    for route in API:
        # Which methods a route lacks depends on neither role nor scope. The keys that may most and least try every
        # route, so that none ignores its rule; the others try one route of each rule.
        new = [method for method, rule in route.rules.items() if (role, scope) == LEAST or rule not in known]
        known.update(route.rules.values())
        for method in METHODS if is_full else new:
            # A served environment or agent gives a cookie of its own.
            client.cookies.clear()
            found, wanted = seen(client, route.path, method), expected(route, role, scope, method)
            if found != wanted:
                wrong.append(f"{role} with {scope} {method} {route.path}: {found}, not {wanted}")
    assert wrong == []


@pytest.mark.django_db
def test_a_key_opens_no_page():
    client = key_of(make_user(Role.ADMIN), *Scope.values)
    closed = [
        (method, route.path)
        for route in PAGES
        for method in METHODS
        if route.rules.get(method) is not Permission.PUBLIC
    ]
    assert [f"{method} {path}" for method, path in closed if seen(client, path, method) == ADMITTED] == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", every_socket())
def test_a_key_opens_no_socket(path):
    _, token = create_api_key(user=make_user(Role.ADMIN), name="walk", scopes=Scope.values)
    headers = [
        (b"host", b"localhost"),
        (b"origin", b"http://localhost"),
        (b"authorization", f"Bearer {token}".encode()),
    ]

    async def go() -> bool:
        socket = WebsocketCommunicator(application, path, headers)
        is_open, _ = await socket.connect(timeout=DEADLINE)
        await socket.disconnect(timeout=DEADLINE)
        return is_open

    assert async_to_sync(go)() is False


@pytest.mark.django_db
def test_no_key_lists_makes_or_revokes_keys_nor_touches_accounts():
    own = [route for route in API if {*route.rules.values()} & SESSION_ONLY]
    assert {"/api/v1/me/keys/", "/api/v1/me/keys/999999/"} <= {route.path for route in own}
    client = key_of(make_user(Role.ADMIN), *Scope.values)
    before = list(ApiKey.objects.order_by("pk").values("pk", "revoked_at"))
    for route in own:
        for method, permission in route.rules.items():
            if permission in SESSION_ONLY:
                body = {"name": "another", "scopes": ["admin"]}
                reply = client.generic(method, route.path, data=str(body), content_type="application/json")
                assert (reply.status_code, reply["Content-Type"]) == (403, "application/problem+json")
    assert list(ApiKey.objects.order_by("pk").values("pk", "revoked_at")) == before


def may_write(scope: str) -> set[str]:
    """The routes of the API that change something and that this scope opens to an admin's key."""
    # Each tool of /mcp needs the scope of its operations (tests/mcp_server/test_permissions.py).
    api = [route for route in API if route.path.rstrip("/") != "/mcp"]
    routes = [(method, route) for route in api for method in UNSAFE if route.rules.get(method) is not Permission.PUBLIC]
    return {
        f"{method} {route.path}" for method, route in routes if expected(route, Role.ADMIN, scope, method) == ADMITTED
    }


def words(changes: set[str]) -> set[str]:
    """The nouns: what stands after /api/v1/ and the like."""
    return {"/".join(one.split()[1].split("/")[1:4]).removeprefix("api/v1/").rstrip("/") for one in changes}


# Written out by hand, so that a slip in the table of scopes or in a route's rule is seen too.
def test_the_scopes_change_exactly():
    assert words(may_write(Scope.TASKS_WRITE)) == {"column-mappings", "datasets", "tasks", "uploads"}
    assert may_write(Scope.ROLLOUTS_READ) == set()
    assert words(may_write(Scope.ROLLOUTS_RUN)) == {
        "attempts",
        "collections",
        "rechecks",
        "reverifications",
        "rollouts",
        "scans",
        "suites",
        "gym/environments/no-such-thing",
        "gym/agents/no-such-thing",
        "gym/models/no-such-thing",
        "otlp/v1/traces",
    }
    assert "POST /api/v1/rollouts/stream/" in may_write(Scope.ROLLOUTS_RUN)
    assert words(may_write(Scope.ANNOTATE)) == {
        "comments",
        "flags",
        "pair-sets",
        "queue-items",
        "queues",
        "reviews",
        "reward-overrides",
        "rubrics",
        "saved-views",
    }
    assert words(may_write(Scope.EXPORT)) == {
        "collections",
        "exports",
        "hub-pushes",
        "pair-sets",
        "pairs",
        "rollouts",
        "trace-sends",
        "tracked-runs",
    }
    everything = may_write(Scope.ADMIN)
    for scope in Scope.values:
        assert may_write(scope) <= everything
    assert {"POST /api/v1/policy-models/", "POST /api/v1/workers/999999/drain/"} <= everything


def test_a_key_that_uploads_tasks_reads_no_rollouts():
    read = {route.path for route in API if expected(route, Role.ADMIN, Scope.TASKS_WRITE, "GET") == ADMITTED}
    assert words({f"GET {path}" for path in read if path != "/api/"}) == {
        "api/schema",
        "column-mappings",
        "datasets",
        "deletions",
        "me",
        "tasks",
        "uploads",
    }


def test_every_permission_has_a_scope_or_needs_a_session():
    assert {permission for permission in Permission if not scopes_with(permission)} == SESSION_ONLY


def test_a_page_offers_only_the_scopes_that_the_role_gets_something_from():
    # With the second a viewer's program saves views.
    assert useful_scopes(Role.VIEWER) == [Scope.ROLLOUTS_READ, Scope.ANNOTATE]
    assert useful_scopes(Role.ANNOTATOR) == [Scope.ROLLOUTS_READ, Scope.ANNOTATE]
    assert useful_scopes(Role.ENGINEER) == list(Scope)
    assert useful_scopes(Role.ADMIN) == list(Scope)
