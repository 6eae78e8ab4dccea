import pytest
from django.test import Client

from apps.accounts.api_keys import create_api_key, revoke_api_key
from apps.accounts.models import AuditEntry, Role
from apps.environments.models import Adapter
from apps.policies.models import PolicyModel
from apps.policies.secrets import decrypt_secret
from tests.factories import make_environment, make_policy_model, make_user

pytestmark = pytest.mark.django_db
SECRETS = "/settings/secrets/"
OUTGOING = "/settings/outgoing/"
KEY = "sk-a-key-that-nobody-should-read-q7Zx"


@pytest.fixture
def model(db: None) -> PolicyModel:
    return make_policy_model(
        slug="gpt", name="GPT", provider="compatible", base_url="https://93.184.215.14/v1", model_name="gpt"
    )


def test_settings_show_each_role_what_it_may_open(pages: Client, admin_pages: Client, viewer_pages: Client):
    assert 'href="/settings/secrets/"' in pages.get("/settings/").text
    assert 'href="/people/"' not in pages.get("/settings/").text
    assert 'href="/people/"' in admin_pages.get("/settings/").text
    plain = viewer_pages.get("/settings/").text
    assert 'href="/account/"' in plain
    assert "/settings/outgoing/" not in plain


def test_keys_of_everybody_are_listed_for_admins_and_revoked(admin_pages: Client):
    paul = make_user(Role.VIEWER, username="paul")
    key, token = create_api_key(user=paul, name="cluster", scopes=["rollouts:read"])
    old, _ = create_api_key(user=paul, name="worn out", scopes=["rollouts:read"])
    revoke_api_key(api_key=old, user=paul)
    page = admin_pages.get("/settings/keys/").text
    assert "cluster" in page
    assert "worn out" not in page
    assert token not in page
    assert "worn out" in admin_pages.get("/settings/keys/?all=1").text
    admin_pages.post(f"/account/keys/{key.pk}/revoke/")
    assert "No active API keys" in admin_pages.get("/settings/keys/").text


def test_a_secret_is_written_and_never_shown(pages: Client, model: PolicyModel):
    reply = pages.post(SECRETS, {"of": "model:gpt", "api_key": KEY})
    assert (reply.status_code, reply["Location"]) == (302, SECRETS)
    model.refresh_from_db()
    assert decrypt_secret(model.api_key_encrypted) == KEY
    page = pages.get(SECRETS).text
    assert "…q7Zx" in page
    assert KEY not in page
    entry = AuditEntry.objects.first()
    assert entry is not None
    assert (entry.action, entry.detail["key_changed"]) == ("policy_model.change", True)
    assert KEY not in str((entry.before, entry.after, entry.detail))


def test_a_secret_is_removed_only_when_that_is_asked_for(pages: Client, model: PolicyModel):
    pages.post(SECRETS, {"of": "model:gpt", "api_key": KEY})
    reply = pages.post(SECRETS, {"of": "model:gpt", "api_key": "  "})
    assert reply.status_code == 422
    assert "Enter a new key, or select to remove the stored one" in reply.text
    model.refresh_from_db()
    assert model.api_key_hint == "…q7Zx"
    pages.post(SECRETS, {"of": "model:gpt", "api_key": "", "remove": "on"})
    model.refresh_from_db()
    assert (model.api_key_hint, model.api_key_encrypted) == ("", "")


def test_an_environment_over_http_has_its_key_there_too(pages: Client):
    made = make_environment(slug="tools", adapter=Adapter.HTTP, base_url="https://93.184.215.14/gym")
    pages.post(SECRETS, {"of": "environment:tools", "api_key": KEY})
    made.refresh_from_db()
    assert decrypt_secret(made.api_key_encrypted) == KEY


@pytest.mark.parametrize("of", ["", "model:none", "user:erika", "model"])
def test_a_key_of_nothing_is_refused(pages: Client, model: PolicyModel, of):
    assert pages.post(SECRETS, {"of": of, "api_key": KEY}).status_code == 422
    model.refresh_from_db()
    assert model.api_key_encrypted == ""


def test_a_key_that_is_refused_does_not_come_back_in_the_page(pages: Client, model: PolicyModel):
    reply = pages.post(SECRETS, {"of": "model:other", "api_key": KEY})
    assert reply.status_code == 422
    assert KEY not in reply.text


@pytest.mark.parametrize(
    ("allow", "address", "says"),
    [
        ([], "http://10.1.2.3:8000/v1", "is not a public address"),
        (["10.0.0.0/8"], "http://10.1.2.3:8000/v1", "Allowed"),
        (["10.1.2.3:9000"], "http://10.1.2.3:8000/v1", "is not a public address"),
        (["169.254.0.0/16"], "http://169.254.169.254/", "cloud metadata"),
        ([], "ftp://example.com", "is not an http or https URL"),
        ([], "https://user:word@example.com/", "must not contain a user"),
        ([], "https://93.184.215.14/v1", "Allowed"),
    ],
)
def test_an_address_is_tried_without_a_connection(pages: Client, settings, monkeypatch, allow, address, says):
    settings.OUTBOUND_ALLOW = allow
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("it connected"))
    reply = pages.post(OUTGOING, {"address": address})
    assert reply.status_code == 200
    assert says in reply.text


def test_the_operators_list_is_told_in_words_with_the_addresses_in_use(pages: Client, settings, model: PolicyModel):
    settings.OUTBOUND_ALLOW = ["localhost", "10.0.0.0/24", "vllm.local:8000", "[::1]:9000", "192.168.1.5"]
    make_policy_model(slug="inside", name="Inside", provider="vllm", base_url="http://172.16.0.9/v1", model_name="m")
    page = pages.get(OUTGOING).text
    for words in (
        "any address that this name resolves to, and the addresses of this machine; every port",
        "256 addresses, every port",
        "any address that this name resolves to; port 8000 only",
        "this IPv6 address; port 9000 only",
        "this IPv4 address; every port",
        "172.16.0.9:80 is not a public address",
    ):
        assert words in page


def test_an_empty_address_is_a_form_error(pages: Client):
    assert pages.post(OUTGOING, {"address": ""}).status_code == 422
