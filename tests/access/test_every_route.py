"""URL × role × method, from the URL configuration itself: a route without a rule, or one that keeps it badly, fails."""

import pytest
from asgiref.sync import async_to_sync
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Role, User
from apps.accounts.permissions import ROLE_PERMISSIONS, Permission
from gymweb.asgi import application
from tests.access.routes import METHODS, Route, every_route, every_socket
from tests.deadlines import DEADLINE
from tests.factories import make_user

ROUTES = every_route()
ANONYMOUS = "anonymous"
REFUSED, ADMITTED, NO_METHOD = "refused", "admitted", "no such method"


def expected(route: Route, role: str, method: str) -> str:
    permission = route.rules.get(method)
    is_stranger = role == ANONYMOUS
    held = {Permission.PUBLIC} if is_stranger else ROLE_PERMISSIONS[role]
    if permission is None:
        # Who is not signed in does not even learn which methods there are, except of a public page.
        return REFUSED if is_stranger and Permission.PUBLIC not in route.rules.values() else NO_METHOD
    return ADMITTED if permission in held else REFUSED


def enter(user: User | None) -> Client:
    client = Client()
    if user:
        client.force_login(user)
    return client


def seen(client: Client, path: str, method: str) -> str:
    response = client.generic(method, path)
    to_sign_in = response.status_code == 302 and response["Location"].startswith(f"{reverse(settings.LOGIN_URL)}?next=")
    assert response.status_code < 500, f"{method} {path} broke: {response.status_code}"
    if response.status_code in {401, 403} or to_sign_in:
        return REFUSED
    return NO_METHOD if response.status_code == 405 else ADMITTED


def test_the_walk_visits_every_route():
    paths = {route.path for route in ROUTES}
    assert {"/healthz", "/", "/sign-in/", "/api/v1/datasets/", "/api/v1/me/", "/api/schema/", "/api/docs/"} <= paths
    assert len(paths) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_has_a_rule_for_every_method_it_answers(route):
    assert route.rules, "a route without any rule"
    assert [method for method, permission in route.rules.items() if permission is None] == []
    assert set(map(type, route.rules.values())) == {Permission}


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("role", [ANONYMOUS, *Role.values])
def test_every_route_keeps_its_rule(role):
    user = None if role == ANONYMOUS else make_user(role)
    client, wrong = enter(user), []
    for route in ROUTES:
        # Which methods a route lacks depends on no role, but strangers may not learn it.
        for method in METHODS if role in {ANONYMOUS, Role.ADMIN} else route.rules:
            # Signing in costs as much as the request, so a session is kept until a route ends it.
            if user and client.session.get(SESSION_KEY) != str(user.pk):
                client = enter(user)
            found, wanted = seen(client, route.path, method), expected(route, role, method)
            # A page may answer "method not allowed" by itself where it is admitted.
            if found != wanted and (found, wanted) != (NO_METHOD, ADMITTED):
                wrong.append(f"{role} {method} {route.path}: {found}, not {wanted}")
    assert wrong == []


@pytest.mark.django_db
def test_head_answers_as_get_does():
    client, wrong = enter(make_user(Role.ADMIN)), []
    for route in ROUTES:
        if "GET" in route.rules:
            got, told = (client.generic(method, route.path).status_code for method in ("GET", "HEAD"))
            if told != got:
                wrong.append(f"{route.path}: HEAD {told}, GET {got}")
    assert wrong == []


def who_may(path: str, method: str) -> set[str]:
    route = next(route for route in ROUTES if route.path == path)
    return {role for role in [ANONYMOUS, *Role.values] if expected(route, role, method) == ADMITTED}


EVERYONE = {"anonymous", "viewer", "annotator", "engineer", "admin"}
MEMBERS = EVERYONE - {"anonymous"}
READERS = MEMBERS - {"annotator"}
REVIEWERS = MEMBERS - {"viewer"}
BUILDERS = {"engineer", "admin"}
DATASET = "/api/v1/datasets/no-such-thing/"


# Written out by hand, so that a slip in the table of permissions or in a route's rule is seen too.
@pytest.mark.parametrize(
    ("method", "path", "roles"),
    [
        ("GET", "/healthz", EVERYONE),
        ("GET", "/", MEMBERS),
        ("GET", "/sign-in/", EVERYONE),
        ("GET", "/account/", MEMBERS),
        ("GET", "/api/schema/", MEMBERS),
        ("GET", "/api/docs/", MEMBERS),
        ("GET", "/api/v1/me/", MEMBERS),
        ("GET", "/api/v1/me/keys/", MEMBERS),
        ("POST", "/api/v1/me/keys/", MEMBERS),
        ("DELETE", "/api/v1/me/keys/999999/", MEMBERS),
        ("GET", "/api/v1/datasets/", READERS),
        ("GET", "/api/v1/policy-models/", READERS),
        ("GET", "/api/v1/rollouts/999999/trace/", READERS),
        ("GET", "/api/v1/rollouts/999999/tokens/", READERS),
        ("POST", "/api/v1/rollouts/stream/", BUILDERS),
        ("GET", "/api/v1/policy-models/no-such-thing/versions/", READERS),
        ("GET", "/api/v1/collections/999999/breakdown/", READERS),
        ("GET", "/api/v1/collections/999999/profile/", READERS),
        ("POST", "/api/v1/datasets/", BUILDERS),
        ("POST", f"{DATASET}uploads/", BUILDERS),
        ("GET", f"{DATASET}uploads/", READERS),
        ("POST", f"{DATASET}uploads/parts/", BUILDERS),
        ("PUT", "/api/v1/uploads/999999/parts/", BUILDERS),
        ("POST", "/api/v1/uploads/999999/finish/", BUILDERS),
        ("POST", "/api/v1/policy-models/", BUILDERS),
        ("PUT", "/api/v1/policy-models/no-such-thing/", BUILDERS),
        ("PATCH", "/api/v1/policy-models/no-such-thing/", BUILDERS),
        ("POST", "/api/v1/policy-models/no-such-thing/check/", BUILDERS),
        ("PATCH", "/api/v1/environments/no-such-thing/", BUILDERS),
        ("POST", "/api/v1/environments/no-such-thing/check/", BUILDERS),
        ("POST", "/api/v1/environments/no-such-thing/try/", BUILDERS),
        ("POST", "/api/v1/environments/no-such-thing/run_cases/", BUILDERS),
        ("PATCH", "/api/v1/agents/no-such-thing/", BUILDERS),
        ("GET", "/api/v1/suites/", READERS),
        ("POST", "/api/v1/suites/", BUILDERS),
        ("POST", "/api/v1/suites/no-such-thing/collect/", BUILDERS),
        ("GET", "/suites/no-such-thing/", READERS),
        ("POST", "/suites/no-such-thing/edit/", BUILDERS),
        ("POST", "/suites/no-such-thing/collect/", BUILDERS),
        ("POST", "/suites/no-such-thing/delete/", BUILDERS),
        ("DELETE", "/api/v1/suites/no-such-thing/", BUILDERS),
        ("POST", "/api/v1/collections/", BUILDERS),
        ("POST", "/api/v1/collections/999999/cancel/", BUILDERS),
        ("PATCH", "/api/v1/collections/999999/", BUILDERS),
        ("POST", "/api/v1/collections/999999/pause/", BUILDERS),
        ("POST", "/api/v1/collections/999999/resume/", BUILDERS),
        ("POST", "/api/v1/collections/999999/retry/", BUILDERS),
        ("POST", "/api/v1/workers/999999/drain/", BUILDERS),
        ("GET", "/api/v1/rollouts/999999/attempts/", READERS),
        ("POST", "/api/v1/pair-sets/", BUILDERS),
        ("POST", "/api/v1/pair-sets/count/", BUILDERS),
        ("POST", "/api/v1/pair-sets/999999/ask/", BUILDERS),
        ("POST", "/api/v1/pair-sets/999999/cancel/", BUILDERS),
        ("DELETE", "/api/v1/pair-sets/999999/", BUILDERS),
        ("GET", "/api/v1/pair-sets/999999/changes/", READERS),
        ("POST", "/api/v1/pairs/999999/decide/", BUILDERS),
        ("POST", "/api/v1/pairs/decide/", BUILDERS),
        ("GET", "/api/v1/pairs/999999/decisions/", READERS),
        ("GET", "/api/v1/pairs/999999/reviews/", READERS),
        ("POST", "/api/v1/rechecks/", BUILDERS),
        ("POST", "/api/v1/rechecks/999999/apply/", BUILDERS),
        ("POST", "/api/v1/rechecks/999999/resume/", BUILDERS),
        ("GET", "/api/v1/rechecks/999999/changes/", READERS),
        ("POST", "/rechecks/new/", BUILDERS),
        ("POST", "/rechecks/999999/apply/", BUILDERS),
        ("POST", "/api/v1/reverifications/", BUILDERS),
        ("POST", "/api/v1/reverifications/999999/apply/", BUILDERS),
        ("GET", "/api/v1/reverifications/999999/rewards/", READERS),
        ("POST", "/reverifications/new/", BUILDERS),
        ("POST", "/reverifications/999999/apply/", BUILDERS),
        ("POST", "/reverifications/999999/cancel/", BUILDERS),
        ("GET", "/scans/999999/", READERS),
        ("POST", "/scans/new/", BUILDERS),
        ("POST", "/scans/999999/start/", BUILDERS),
        ("POST", "/scans/999999/resume/", BUILDERS),
        ("POST", "/scans/999999/cancel/", BUILDERS),
        ("POST", "/api/v1/scans/", BUILDERS),
        ("POST", "/api/v1/scans/999999/start/", BUILDERS),
        ("POST", "/api/v1/scans/999999/resume/", BUILDERS),
        ("POST", "/api/v1/scans/999999/cancel/", BUILDERS),
        ("GET", "/api/v1/scans/999999/answers/", READERS),
        ("GET", "/api/v1/scans/999999/accuracy/", READERS),
        ("POST", "/api/v1/exports/", BUILDERS),
        ("GET", "/settings/trackers/", READERS),
        ("GET", "/settings/trackers/new/", BUILDERS),
        ("POST", "/settings/trackers/999999/edit/", BUILDERS),
        ("POST", "/settings/trackers/999999/delete/", BUILDERS),
        ("GET", "/collections/999999/tracking/", READERS),
        ("POST", "/collections/999999/tracking/", BUILDERS),
        ("POST", "/tracked-runs/999999/stop/", BUILDERS),
        ("POST", "/tracked-runs/999999/resend/", BUILDERS),
        ("POST", "/tracked-runs/999999/delete/", BUILDERS),
        ("GET", "/exports/999999/push/", BUILDERS),
        ("POST", "/exports/999999/push/", BUILDERS),
        ("GET", "/api/v1/trackers/", READERS),
        ("POST", "/api/v1/trackers/", BUILDERS),
        ("DELETE", "/api/v1/trackers/999999/", BUILDERS),
        ("POST", "/api/v1/tracked-runs/", BUILDERS),
        ("POST", "/api/v1/tracked-runs/999999/resend/", BUILDERS),
        ("GET", "/api/v1/hub-pushes/", READERS),
        ("POST", "/api/v1/hub-pushes/", BUILDERS),
        ("GET", "/api/v1/exports/999999/download/", BUILDERS),
        ("GET", "/api/v1/exports/999999/manifest/", BUILDERS),
        ("GET", "/exports/999999/download/", BUILDERS),
        ("POST", "/exports/new/", BUILDERS),
        ("DELETE", "/api/v1/exports/999999/", BUILDERS),
        ("POST", "/exports/999999/delete/", BUILDERS),
        ("POST", "/exports/999999/cancel/", BUILDERS),
        ("POST", "/api/v1/exports/999999/cancel/", BUILDERS),
        ("GET", "/settings/traces/", BUILDERS),
        ("GET", "/settings/traces/new/", BUILDERS),
        ("POST", "/settings/traces/new/", BUILDERS),
        ("POST", "/settings/traces/999999/edit/", BUILDERS),
        ("POST", "/settings/traces/999999/delete/", BUILDERS),
        ("POST", "/exports/999999/send/", BUILDERS),
        ("POST", "/trace-sends/999999/cancel/", BUILDERS),
        ("POST", "/trace-sends/999999/resume/", BUILDERS),
        ("GET", "/api/v1/trace-destinations/", BUILDERS),
        ("POST", "/api/v1/trace-destinations/", BUILDERS),
        ("PATCH", "/api/v1/trace-destinations/999999/", BUILDERS),
        ("DELETE", "/api/v1/trace-destinations/999999/", BUILDERS),
        ("GET", "/api/v1/trace-sends/", READERS),
        ("POST", "/api/v1/trace-sends/", BUILDERS),
        ("POST", "/api/v1/trace-sends/999999/cancel/", BUILDERS),
        ("POST", "/api/v1/trace-sends/999999/resume/", BUILDERS),
        ("POST", "/collections/999999/archive/", BUILDERS),
        ("POST", "/collections/999999/restore/", BUILDERS),
        ("POST", "/collections/999999/delete/", BUILDERS),
        ("GET", "/collection-deletions/999999/", READERS),
        ("GET", "/gym/environments/no-such-thing/", READERS),
        ("POST", "/gym/environments/no-such-thing/no-such-thing", BUILDERS),
        ("POST", "/gym/agents/no-such-thing/no-such-thing/no-such-thing/no-such-thing", BUILDERS),
        ("POST", "/gym/models/no-such-thing/no-such-thing", BUILDERS),
        ("POST", "/api/v1/people/", {"admin"}),
        ("GET", "/api/v1/people/", {"admin"}),
        ("PATCH", "/api/v1/people/999999/", {"admin"}),
        ("POST", "/api/v1/people/999999/link/", {"admin"}),
        ("POST", "/api/v1/people/999999/end_sessions/", {"admin"}),
        ("POST", "/api/v1/people/999999/remove_second_factor/", {"admin"}),
        ("GET", "/api/v1/invitations/", {"admin"}),
        ("POST", "/api/v1/invitations/", {"admin"}),
        ("DELETE", "/api/v1/invitations/999999/", {"admin"}),
        ("GET", "/api/v1/me/sessions/", MEMBERS),
        ("DELETE", "/api/v1/me/sessions/999999/", MEMBERS),
        ("GET", "/api/v1/audit-entries/", {"admin"}),
        ("GET", "/api/v1/audit-entries/export/", {"admin"}),
        ("GET", "/audit/", {"admin"}),
        ("GET", "/audit/export/", {"admin"}),
        ("POST", "/people/new/", {"admin"}),
        ("GET", "/people/", {"admin"}),
        ("GET", "/find/", MEMBERS),
        ("GET", "/settings/", READERS),
        ("GET", "/queues/", MEMBERS),
        ("GET", "/queues/999999/", READERS),
        ("GET", "/queues/999999/items/", READERS),
        ("GET", "/queues/999999/review/", REVIEWERS),
        ("GET", "/queue-items/999999/", READERS),
        ("POST", "/queue-items/999999/", BUILDERS),
        ("GET", "/reviews/", MEMBERS),
        ("GET", "/rubrics/", READERS),
        ("GET", "/api/v1/queues/", MEMBERS),
        ("GET", "/api/v1/queues/waiting/", REVIEWERS),
        ("GET", "/api/v1/queues/999999/figures/", READERS),
        ("GET", "/api/v1/queues/999999/export/", BUILDERS),
        ("GET", "/api/v1/queue-items/", READERS),
        ("GET", "/api/v1/reviews/", MEMBERS),
        ("GET", "/api/v1/reviews/export/", BUILDERS),
        ("GET", "/api/v1/rubrics/", READERS),
        ("GET", "/settings/keys/", {"admin"}),
        ("GET", "/settings/secrets/", BUILDERS),
        ("POST", "/settings/secrets/", BUILDERS),
        ("GET", "/settings/storage/", {"admin"}),
        ("POST", "/settings/storage/", {"admin"}),
        ("GET", "/api/v1/storage/", {"admin"}),
        ("POST", "/api/v1/retention/preview/", {"admin"}),
        ("POST", "/api/v1/retention/", {"admin"}),
        ("GET", "/settings/outgoing/", BUILDERS),
        ("POST", "/settings/outgoing/", BUILDERS),
        ("POST", "/people/999999/", {"admin"}),
        ("POST", "/people/999999/link/", {"admin"}),
        ("POST", "/people/999999/sessions/end/", {"admin"}),
        ("POST", "/people/999999/two-factor/remove/", {"admin"}),
        ("GET", "/people/invite/", {"admin"}),
        ("POST", "/people/invite/", {"admin"}),
        ("POST", "/people/invitations/999999/revoke/", {"admin"}),
        ("POST", "/account/sessions/999999/end/", MEMBERS),
        ("POST", "/account/sessions/end/", MEMBERS),
        ("GET", "/account/two-factor/", MEMBERS),
        ("POST", "/account/two-factor/start/", MEMBERS),
        ("POST", "/account/two-factor/remove/", MEMBERS),
        ("GET", "/sign-in/code/", EVERYONE),
        ("GET", "/sign-in/oidc/callback/", EVERYONE),
        ("GET", "/invitations/no-such-thing/", EVERYONE),
        ("POST", "/datasets/new/", BUILDERS),
        ("POST", "/datasets/no-such-thing/upload/", BUILDERS),
        ("POST", "/datasets/no-such-thing/edit/", BUILDERS),
        ("POST", "/datasets/no-such-thing/mark/", BUILDERS),
        ("POST", "/datasets/no-such-thing/delete/", BUILDERS),
        ("GET", "/datasets/no-such-thing/changes/", READERS),
        ("GET", "/datasets/no-such-thing/metrics/", READERS),
        ("GET", "/deletions/999999/", READERS),
        ("POST", "/uploads/999999/map/", BUILDERS),
        ("GET", "/column-mappings/", READERS),
        ("POST", "/column-mappings/no-such-thing/delete/", BUILDERS),
        ("POST", "/uploads/999999/commit/", BUILDERS),
        ("POST", "/uploads/999999/discard/", BUILDERS),
        ("POST", "/models/new/", BUILDERS),
        ("POST", "/models/no-such-thing/edit/", BUILDERS),
        ("POST", "/models/no-such-thing/check/", BUILDERS),
        ("GET", "/models/no-such-thing/try/", BUILDERS),
        ("POST", "/models/no-such-thing/try/", BUILDERS),
        ("POST", "/api/v1/policy-models/no-such-thing/try/", BUILDERS),
        ("POST", "/environments/new/", BUILDERS),
        ("POST", "/agents/no-such-thing/edit/", BUILDERS),
        ("POST", "/account/keys/", MEMBERS),
        ("POST", "/account/keys/999999/revoke/", MEMBERS),
        ("POST", "/collections/new/", BUILDERS),
        ("POST", "/collections/import/", BUILDERS),
        ("POST", "/api/v1/collections/import/", BUILDERS),
        ("POST", "/collections/999999/cancel/", BUILDERS),
        ("POST", "/collections/999999/pause/", BUILDERS),
        ("POST", "/collections/999999/resume/", BUILDERS),
        ("POST", "/collections/999999/limits/", BUILDERS),
        ("POST", "/collections/999999/retry/", BUILDERS),
        ("POST", "/workers/999999/drain/", BUILDERS),
        ("POST", "/pair-sets/new/", BUILDERS),
        ("POST", "/queues/999999/edit/", BUILDERS),
        ("POST", "/queues/999999/delete/", BUILDERS),
        ("POST", "/rubrics/no-such-thing/edit/", BUILDERS),
        ("POST", "/rubrics/no-such-thing/delete/", BUILDERS),
        ("POST", "/pair-sets/999999/ask/", BUILDERS),
        ("POST", "/pair-sets/999999/cancel/", BUILDERS),
        ("POST", "/pair-sets/999999/delete/", BUILDERS),
        ("POST", "/pairs/999999/decide/", BUILDERS),
        ("POST", "/rollouts/999999/comments/", BUILDERS),
        ("POST", "/api/v1/comments/", BUILDERS),
        ("POST", "/api/v1/uploads/999999/check/", BUILDERS),
        ("POST", "/api/v1/uploads/999999/commit/", BUILDERS),
        ("GET", "/api/v1/uploads/999999/preview/", READERS),
        ("DELETE", "/api/v1/uploads/999999/", BUILDERS),
        ("DELETE", DATASET, BUILDERS),
        ("PATCH", DATASET, BUILDERS),
        ("DELETE", f"{DATASET}versions/999999/", BUILDERS),
        ("GET", f"{DATASET}versions/999999/", READERS),
        ("GET", f"{DATASET}versions/999999/metrics/", READERS),
        ("GET", f"{DATASET}versions/999999/changes/", READERS),
        ("GET", f"{DATASET}versions/999999/changes/tasks/", READERS),
        ("GET", f"{DATASET}versions/999999/rows/", READERS),
        ("PATCH", "/api/v1/tasks/999999/", BUILDERS),
        ("POST", "/api/v1/tasks/mark/", BUILDERS),
        ("POST", "/api/v1/column-mappings/", BUILDERS),
        ("DELETE", "/api/v1/column-mappings/no-such-thing/", BUILDERS),
        ("GET", "/api/v1/deletions/999999/", READERS),
        ("DELETE", "/api/v1/deletions/999999/", set()),
        ("DELETE", "/api/v1/collections/999999/", BUILDERS),
        ("GET", "/api/v1/collection-deletions/999999/", READERS),
        ("DELETE", "/api/v1/collection-deletions/999999/", set()),
        ("POST", "/api/v1/collections/estimate/", BUILDERS),
        ("POST", "/api/v1/collections/999999/clone/", BUILDERS),
        ("POST", "/api/v1/collections/999999/archive/", BUILDERS),
        ("POST", "/api/v1/collections/999999/restore/", BUILDERS),
        ("POST", "/api/v1/workers/", set()),
        ("POST", "/api/v1/rollouts/", set()),
    ],
)
def test_the_sensitive_routes_admit_exactly(method, path, roles):
    assert who_may(path, method) == roles


def what_it_may_change(role: str) -> set[str]:
    unsafe = [method for method in METHODS if method not in {"GET", "HEAD"}]
    changes = {(m, route.path) for route in ROUTES for m in unsafe if expected(route, role, m) == ADMITTED}
    # What leads nowhere below /api/ says so to every method; one's own account is everybody's to change.
    own = ("/account/", "/api/v1/me/")
    return {f"{method} {path}" for method, path in changes if path != "/api/" and not path.startswith(own)}


REVIEWED = {
    *("POST /queues/999999/undo/", "POST /queues/999999/review/", "POST /queues/999999/quick-pass/"),
    *("POST /reviews/999999/skip/", "POST /reviews/999999/submit/"),
    *("POST /api/v1/queues/999999/claim/", "POST /api/v1/queues/999999/undo/", "POST /api/v1/reviews/999999/renew/"),
    *("POST /api/v1/reviews/999999/skip/", "POST /api/v1/reviews/999999/submit/"),
}


def test_viewers_change_nothing_and_annotators_only_review():
    personal = {
        "POST /sign-in/",
        "POST /sign-in/code/",
        "POST /sign-in/no-such-thing/",
        "POST /invitations/no-such-thing/",
        "POST /sign-out/",
        "POST /theme/",
        "POST /first-steps/hide/",
    }
    # How a table looks to them, filters under a name, and the way from marked rows to their comparison.
    views = {
        *("POST /rollouts/columns/", "POST /rollouts/views/", "POST /rollouts/views/999999/delete/"),
        *("POST /api/v1/saved-views/", "PATCH /api/v1/saved-views/999999/", "DELETE /api/v1/saved-views/999999/"),
        "POST /rollouts/selected/compare/",
    }
    # Its tools that change something are only for those who may (tests/mcp_server/test_permissions.py).
    tools = {"POST /mcp", "POST /mcp/"}
    assert what_it_may_change(Role.VIEWER) == personal | views | tools
    assert what_it_may_change(Role.ANNOTATOR) == personal | REVIEWED


def test_annotators_read_nothing_but_their_own_work():
    read = {route.path for route in ROUTES if expected(route, Role.ANNOTATOR, "GET") == ADMITTED}
    own = {path for path in read if path.startswith(("/account/", "/api/v1/me/", "/sign-in/", "/invitations/"))}
    assert read - own == {
        *(
            "/",
            "/find/",
            "/queues/",
            "/queues/999999/quick-pass/",
            "/queues/999999/review/",
            "/reviews/",
            "/reviews/999999/text/no-such-thing/999999/",
            # Addressed by the hash of its content, which only the pages of items tell them.
            "/images/no-such-thing/",
        ),
        *("/api/v1/queues/", "/api/v1/queues/999999/", "/api/v1/queues/waiting/"),
        *("/api/v1/reviews/", "/api/v1/reviews/999999/"),
        *("/api/", "/api/docs/", "/api/schema/", "/favicon.ico", "/healthz", "/readyz"),
    }


def test_other_peoples_accounts_are_for_admins_only():
    rules = {rule for route in ROUTES if route.path.startswith("/people/") for rule in route.rules.values()}
    assert rules <= {Permission.ACCOUNTS}
    admins = [role for role in Role.values if Permission.ACCOUNTS in ROLE_PERMISSIONS[role]]
    assert admins == [Role.ADMIN]


def test_strangers_reach_nothing_but_signing_in_the_icon_and_the_health_checks():
    open_to_all = {route.path for route in ROUTES if Permission.PUBLIC in route.rules.values()}
    assert open_to_all == {
        "/favicon.ico",
        "/healthz",
        "/readyz",
        "/sign-in/",
        "/sign-in/code/",
        "/sign-in/oidc/",
        "/sign-in/oidc/callback/",
        "/sign-in/no-such-thing/",
        "/invitations/no-such-thing/",
        "/theme/",
        "/api/",  # and all that leads nowhere below it: says "not found" to everyone
    }


SOCKETS = every_socket()


def connect(path: str, user: User | None, origin: str = "http://localhost") -> bool:
    """Whether the socket opens to the session of this user."""
    headers = [(b"host", b"localhost"), (b"origin", origin.encode())]
    if user:
        client = Client()
        client.force_login(user)
        headers.append(
            (b"cookie", f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}".encode())
        )

    async def go() -> bool:
        socket = WebsocketCommunicator(application, path, headers)
        is_open, _ = await socket.connect(timeout=DEADLINE)
        await socket.disconnect(timeout=DEADLINE)
        return is_open

    return async_to_sync(go)()


def test_the_walk_sees_the_sockets():
    assert SOCKETS != []


# Channels closes the connection around its database work, so these cannot share the test's transaction.
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", SOCKETS)
def test_no_socket_opens_to_a_stranger_nor_to_a_closed_account_nor_from_another_site(path):
    member = make_user(Role.ADMIN)
    closed = make_user(Role.ADMIN, is_active=False)
    assert connect(path, None) is False
    assert connect(path, closed) is False
    assert connect(path, member, origin="https://elsewhere.example") is False


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", SOCKETS)
def test_a_socket_opens_to_every_role_that_reads(path):
    assert {role for role in Role.values if connect(path, make_user(role))} == READERS
