"""Single sign-on: the protocol's checks, accounts by issuer and subject only, and roles by group at each sign-in."""

from datetime import timedelta

import pytest
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.api_keys import create_api_key, find_api_key
from apps.accounts.models import AuditEntry, BrowserSession, Role, User
from apps.accounts.sessions import sign_in_limits
from apps.accounts.sign_in import create_sign_in_link
from apps.accounts.single_sign_on import provider_sign_in
from apps.accounts.single_sign_on.group_roles import find_role
from apps.accounts.single_sign_on.oidc_protocol import Protocol
from apps.accounts.user_accounts import ManagedByProvider, change_password, edit_user
from tests.accounts.oidc_server import oidc_server, use_provider
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(settings):
    with oidc_server(settings) as running:
        yield running


def is_in(client):
    return client.get("/account/").status_code == 200


def test_the_request_proves_the_code_and_binds_the_browser(server, client: Client):
    sent = server.begin(client)
    assert (sent["response_type"], sent["code_challenge_method"]) == ("code", "S256")
    assert sent["redirect_uri"] == "http://testserver/sign-in/oidc/callback/"
    client.get("/sign-in/oidc/callback/", {"state": sent["state"], "code": "c"})
    assert is_in(client)
    assert (server.verifies(sent["code_challenge"]), server.token_request["code"]) == (True, "c")
    again = server.begin(client)
    assert {sent[name] == again[name] for name in ("state", "nonce", "code_challenge")} == {False}


def test_the_query_of_the_start_changes_nothing_at_the_provider(server, client: Client):
    sent = server.begin(client, "?scope=all&auth_params=prompt%3Dnone&process=connect&next=/agents/")
    assert sorted(sent["scope"].split()) == ["email", "openid", "profile"]
    assert "prompt" not in sent


@pytest.mark.parametrize("page", ["https://evil.example/", "//evil.example", "/\\evil.example"])
def test_no_sign_in_leads_to_another_site(server, client: Client, page):
    assert server.sign_in(client, f"?next={page}")["Location"] == "/"


def test_a_sign_in_leads_to_the_requested_page(server, client: Client):
    assert server.sign_in(client, "?next=/rubrics/%3Fq%3Da")["Location"] == "/rubrics/?q=a"


def refuse(client, reply):
    assert (reply.status_code, is_in(client)) == (403, False)
    assert not User.objects.exists()
    assert AuditEntry.objects.filter(action="sign_in.fail").exists()


def test_a_state_of_another_browser_is_refused(server, client: Client):
    state = server.begin(Client())["state"]
    refuse(client, client.get("/sign-in/oidc/callback/", {"state": state, "code": "c"}))


def test_a_state_works_once(server, client: Client):
    state = server.begin(client)["state"]
    client.get("/sign-in/oidc/callback/", {"state": state, "code": "c"})
    client.post("/sign-out/")
    assert client.get("/sign-in/oidc/callback/", {"state": state, "code": "c"}).status_code == 403
    assert not is_in(client)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("token_claims", {"nonce": "another"}),
        ("token_claims", {"iss": "https://evil.example"}),
        ("token_claims", {"aud": "another"}),
        ("userinfo", {"sub": "subject-2"}),
        ("sign", lambda claims: ""),
    ],
    ids=["nonce", "issuer", "audience", "userinfo", "no-token"],
)
def test_false_replies_are_refused(server, client: Client, name, value):
    setattr(server, name, value)
    refuse(client, server.sign_in(client))


def test_a_discovery_document_of_another_issuer_is_refused(server, client: Client):
    server.discovery = {"issuer": "https://evil.example"}
    assert client.get("/sign-in/oidc/").status_code == 503


def test_an_unreachable_provider_says_so(settings, client: Client):
    use_provider(settings, "http://127.0.0.1:9")
    assert client.get("/sign-in/oidc/").status_code == 503
    # Passwords still work.
    assert 'name="password"' in client.get("/sign-in/").text


def test_without_an_issuer_the_routes_do_not_exist(client: Client):
    assert [client.get(f"/sign-in/oidc/{path}").status_code for path in ("", "callback/")] == [404, 404]
    assert "/sign-in/oidc/" not in client.get("/sign-in/").text


def test_an_account_is_found_by_subject_not_by_name_or_address(server, client: Client):
    erika = make_user(Role.ADMIN, username="Erika", email="erika@example.org", password="a long enough secret")
    server.claims |= {"preferred_username": "erika", "email": "erika@example.org", "email_verified": True}
    server.sign_in(client)
    account = SocialAccount.objects.get()
    assert (account.user.username, account.user.role) == ("erika-2", Role.ENGINEER)
    server.claims |= {"preferred_username": "renamed"}
    server.sign_in(Client())
    erika.refresh_from_db()
    assert (User.objects.count(), erika.role) == (2, Role.ADMIN)


def test_the_same_subject_of_another_issuer_is_another_user(server, client: Client, settings):
    other = make_user(Role.ADMIN)
    use_provider(settings, "https://former.example.org")
    SocialAccount.objects.create(user=other, provider=settings.OIDC.provider_id, uid="subject-1")
    use_provider(settings, server.issuer)
    server.sign_in(client)
    assert SocialAccount.objects.count() == 2


def test_the_role_is_that_of_the_groups_at_each_sign_in(server, client: Client):
    server.claims["groups"] = ["admins"]
    server.sign_in(client)
    server.claims["groups"] = ["annotators"]
    # Even the last admin: the provider decides.
    server.sign_in(Client())
    user = User.objects.get()
    assert user.role == Role.ANNOTATOR
    assert client.get("/people/").status_code == 403
    entry = AuditEntry.objects.get(action="user.edit")
    assert (entry.before, entry.after) == ({"role": "admin"}, {"role": "annotator"})


@pytest.mark.parametrize("groups", [[], ["unknown"], None, {"engineers": True}, 7, ""])
def test_without_a_mapped_group_nobody_gets_in(server, client: Client, groups):
    server.claims["groups"] = groups
    assert server.sign_in(client).status_code == 403
    assert (is_in(client), User.objects.count()) == (False, 0)
    assert AuditEntry.objects.filter(action="sign_in.refuse", target="ada").exists()


def test_a_lost_group_ends_sessions_and_keys_and_a_new_one_restores_them(server, client: Client):
    server.sign_in(client)
    user = User.objects.get()
    _, token = create_api_key(user=user, name="k", scopes=["admin"])
    server.claims["groups"] = []
    assert server.sign_in(Client()).status_code == 403
    assert (is_in(client), find_api_key(token), BrowserSession.objects.count()) == (False, None, 0)
    server.claims["groups"] = ["engineers"]
    server.sign_in(client)
    assert is_in(client)
    user.refresh_from_db()
    assert (user.is_active, user.is_suspended) == (True, False)


def test_a_user_deactivated_by_an_admin_stays_out(server, client: Client):
    server.sign_in(client)
    user, admin = User.objects.get(), make_user(Role.ADMIN)
    edit_user(person=user, role=user.role, is_active=False, by=admin)
    assert not is_in(client)
    assert server.sign_in(client).status_code == 403
    server.claims["groups"] = []
    server.sign_in(client)
    server.claims["groups"] = ["engineers"]
    assert server.sign_in(client).status_code == 403
    user.refresh_from_db()
    assert (user.is_active, user.is_suspended) == (False, False)


def test_an_admin_cannot_reactivate_a_user_without_a_group_but_edit_the_address(server, client: Client):
    server.sign_in(client)
    server.claims["groups"] = []
    server.sign_in(client)
    user, admin = User.objects.get(), make_user(Role.ADMIN)
    with pytest.raises(ManagedByProvider):
        edit_user(person=user, role=user.role, is_active=True, by=admin)
    edit_user(person=User.objects.get(pk=user.pk), role=user.role, email="a@example.org", by=admin)
    server.claims["groups"] = ["engineers"]
    assert server.sign_in(client).status_code == 302


def test_an_account_is_read_and_updated_in_one_transaction(server, client: Client):
    """Otherwise, a sign-in could undo a deactivation by an admin at the same moment."""
    server.sign_in(client)
    with CaptureQueriesContext(connection) as queries:
        server.sign_in(Client())
    sent = [query["sql"] for query in queries]
    [read] = [at for at, sql in enumerate(sent) if "socialaccount" in sql and '"accounts_user"."is_active"' in sql]
    begun, ended = (sum(sql.startswith(word) for sql in sent[:read]) for word in ("SAVEPOINT", "RELEASE SAVEPOINT"))
    assert begun - ended == 1
    assert "FOR UPDATE" in sent[read] or not connection.features.has_select_for_update


@pytest.mark.parametrize("given", ["аda", "ａda", "ádà", "ADA"])  # Cyrillic, full width, accents, case
def test_a_name_of_the_provider_does_not_imitate_another(server, client: Client, given):
    make_user(Role.ADMIN, username="ada")
    server.claims["preferred_username"] = given
    assert server.sign_in(client).status_code == 302
    name = User.objects.exclude(username="ada").get().username
    assert (name.isascii(), name in {"da", "ada-2", "ADA-2"}) == (True, True)


def test_a_name_taken_at_the_same_moment_is_refused(server, client: Client, monkeypatch):
    make_user(username="ada")
    monkeypatch.setattr(provider_sign_in, "_free_name", lambda name: name)
    assert server.sign_in(client).status_code == 403
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri"])
def test_an_endpoint_without_tls_is_refused_for_an_issuer_with_tls(settings, rf, monkeypatch, name):
    use_provider(settings, "https://login.example.org")
    document = {"issuer": "https://login.example.org", "jwks_uri": "https://login.example.org/keys"}
    monkeypatch.setattr(OpenIDConnectOAuth2Adapter, "openid_config", property(lambda self: document))
    protocol = Protocol(rf.get("/"), settings.OIDC.provider_id)
    document[name] = "http://login.example.org/x"
    with pytest.raises(OAuth2Error, match=name):
        _ = protocol.openid_config


@pytest.mark.parametrize("way", ["page", "API"])
def test_the_deactivation_of_a_suspended_account_lasts(server, client: Client, way):
    server.sign_in(client)
    server.claims["groups"] = []
    server.sign_in(client)
    user, admin = User.objects.get(), Client()
    admin.force_login(make_user(Role.ADMIN))
    page, body = f"/people/{user.pk}/", {"email": "a@example.org", "role": user.role}
    assert admin.post(page, body).status_code == 302
    user.refresh_from_db()
    assert (user.is_active, user.is_suspended) == (False, True)
    if way == "page":
        assert admin.post(page, {**body, "keep_out": "on"}).status_code == 302
    else:
        url = f"/api/v1{page}"
        assert admin.patch(url, {"is_active": False}, content_type="application/json").status_code == 200
    server.claims["groups"] = ["engineers"]
    assert server.sign_in(client).status_code == 403
    assert not is_in(client)


def test_an_account_of_the_provider_has_no_other_way_in(server, client: Client):
    server.sign_in(client)
    user, admin = User.objects.get(), make_user(Role.ADMIN)
    for attempt in (
        lambda: change_password(person=user, password="a long enough secret", by=user),
        lambda: create_sign_in_link(user=user, by=admin),
        lambda: edit_user(person=user, role=Role.ADMIN, by=admin),
    ):
        with pytest.raises(ManagedByProvider):
            attempt()
    with pytest.raises(CommandError):
        call_command("sign_in_link", user.username)
    assert 'name="password"' not in client.get("/account/").text


def test_a_password_or_link_from_before_does_not_open_it(server, client: Client, settings):
    user = make_user(username="ada", password="a long enough secret")
    link = create_sign_in_link(user=user)
    SocialAccount.objects.create(user=user, provider=settings.OIDC.provider_id, uid="subject-1")
    reply = client.post("/sign-in/", {"username": "ada", "password": "a long enough secret"})
    assert (reply.status_code, client.post(f"/sign-in/{link}/").status_code, is_in(client)) == (422, 410, False)
    server.sign_in(client)
    assert is_in(client)


def test_a_session_of_the_provider_ends_after_its_hours(server, client: Client, settings):
    use_provider(settings, server.issuer, session_hours=2)
    server.sign_in(client)
    session = BrowserSession.objects.select_related("session").get()
    assert session.method == "provider"
    assert abs(session.session.expire_date - timezone.now() - timedelta(hours=2)) < timedelta(minutes=1)


@pytest.mark.parametrize(("days", "works"), [(0, True), (30, False), (32, True)])
def test_api_keys_stop_some_days_after_the_last_sign_in(server, client: Client, settings, days, works):
    use_provider(settings, server.issuer, key_days=days)
    server.sign_in(client)
    user = User.objects.get()
    _, token = create_api_key(user=user, name="script", scopes=["rollouts:read"])
    _, other = create_api_key(user=make_user(last_login=user.last_login), name="script", scopes=["rollouts:read"])
    User.objects.update(last_login=timezone.now() - timedelta(days=31))
    assert (find_api_key(token) is not None, find_api_key(other) is not None) == (works, True)
    server.sign_in(client)
    assert find_api_key(token)


def test_requests_are_limited_and_their_sessions_end_soon(server, client: Client, monkeypatch):
    monkeypatch.setattr(sign_in_limits, "PROVIDER_REQUESTS_PER_ADDRESS", 2)
    for _ in range(2):
        server.begin(client)
    assert client.session.get_expiry_age() <= 15 * 60
    for path in ("/sign-in/oidc/", "/sign-in/oidc/callback/"):
        reply = client.get(path)
        assert (reply.status_code, "Retry-After" in reply) == (429, True)
    assert Client(REMOTE_ADDR="192.0.2.7").get("/sign-in/oidc/").status_code == 302


def test_what_was_stored_before_signing_in_does_not_stay(server, client: Client):
    server.begin(client)
    server.sign_in(client)
    assert "socialaccount_states" not in client.session


@pytest.mark.parametrize(
    ("claim", "claims", "role"),
    [
        ("groups", {"groups": ["annotators", "admins"]}, Role.ADMIN),  # the order of the setting counts
        ("groups", {"groups": "engineers"}, Role.ENGINEER),
        ("groups", {"groups": ["Engineers"]}, None),
        ("groups", {}, None),
        ("realm_access.roles", {"realm_access": {"roles": ["engineers"]}}, Role.ENGINEER),
        ("realm_access.roles", {"realm_access.roles": ["engineers"]}, Role.ENGINEER),
        ("realm_access.roles", {"realm_access": "engineers"}, None),
    ],
)
def test_groups_are_read_from_their_claim(settings, claim, claims, role):
    use_provider(settings, "https://login.example.org", groups_claim=claim)
    assert find_role(claims) == role


def test_an_unknown_role_of_the_setting_gives_no_access(settings):
    use_provider(settings, "https://login.example.org", roles={"engineers": "owner"})
    assert find_role({"groups": ["engineers"]}) is None
