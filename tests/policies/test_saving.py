"""Saving a policy model: the key is write-only and belongs to the address it was entered for."""

import pytest
from django.core.exceptions import ValidationError

from apps.accounts.models import AuditEntry, Role
from apps.gym.calls import lookups
from apps.policies.models import Health, PolicyModel, Provider
from apps.policies.policy_clients import stored_key
from apps.policies.policy_model_changes import KeyRequired, save_policy_model
from apps.policies.row_checks import RowDeleted
from tests.api.conftest import client_of
from tests.factories import make_policy_model, make_user

pytestmark = pytest.mark.django_db
KEY = "sk-test-0123456789abcd"


def endpoint(**fields):
    given = {"slug": "qwen", "name": "Qwen", "base_url": "https://models.example/v1", "model_name": "qwen3"}
    return PolicyModel(**{**given, "provider": Provider.COMPATIBLE, **fields})


def saved(**fields):
    return save_policy_model(policy_model=endpoint(**fields), api_key=KEY, user=None)


def test_a_key_is_stored_encrypted_with_a_hint():
    row = PolicyModel.objects.get(pk=saved().pk)
    assert (row.api_key_hint, stored_key(row)) == ("…abcd", KEY)
    assert KEY not in str(PolicyModel.objects.values().get())


def test_none_keeps_the_key_and_an_empty_one_removes_it():
    row = saved()
    row.name = "Qwen 3"
    save_policy_model(policy_model=row, api_key=None, user=None)
    assert stored_key(PolicyModel.objects.get()) == KEY
    save_policy_model(policy_model=row, api_key="", user=None)
    row.refresh_from_db()
    assert (stored_key(row), row.api_key_hint, row.name) == ("", "", "Qwen 3")


def test_an_object_that_lost_the_stored_key_does_not_remove_it():
    row = saved()
    row.api_key_encrypted = row.api_key_hint = ""
    save_policy_model(policy_model=row, api_key=None, user=None)
    assert stored_key(PolicyModel.objects.get()) == KEY


def test_a_new_base_url_needs_the_key_again():
    row = saved()
    row.base_url = "https://elsewhere.example/v1"
    with pytest.raises(KeyRequired) as caught:
        save_policy_model(policy_model=row, api_key=None, user=None)
    assert list(caught.value.message_dict) == ["api_key"]
    assert PolicyModel.objects.get().base_url == "https://models.example/v1"
    save_policy_model(policy_model=row, api_key="sk-of-the-other-host", user=None)
    assert stored_key(PolicyModel.objects.get()) == "sk-of-the-other-host"


def test_another_provider_needs_the_key_again():
    row = saved()
    row.provider = Provider.VLLM
    with pytest.raises(KeyRequired):
        save_policy_model(policy_model=row, api_key=None, user=None)
    assert PolicyModel.objects.get().provider == Provider.COMPATIBLE
    assert save_policy_model(policy_model=row, api_key=KEY, user=None).provider == Provider.VLLM


def test_a_trailing_slash_is_no_new_base_url():
    row = saved()
    row.base_url = "https://models.example/v1/"
    save_policy_model(policy_model=row, api_key=None, user=None)
    assert stored_key(PolicyModel.objects.get()) == KEY


def test_a_base_url_without_a_stored_key_may_change():
    row = save_policy_model(policy_model=endpoint(), api_key=None, user=None)
    row.base_url = "https://elsewhere.example/v1"
    save_policy_model(policy_model=row, api_key=None, user=None)
    assert PolicyModel.objects.get().base_url == "https://elsewhere.example/v1"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"base_url": "http://127.0.0.1:8000/v1"}, "base_url"),
        ({"base_url": "http://169.254.169.254/"}, "base_url"),
        ({"base_url": "http://user:pass@models.example/"}, "base_url"),
        ({"base_url": "models.example"}, "base_url"),
        ({"sampling": ["temperature"]}, "sampling"),
        ({"call_timeout": 0}, "call_timeout"),
        ({"max_tries": 0}, "max_tries"),
        ({"mistake_rate": 1.5}, "mistake_rate"),
        ({"slug": "not a slug"}, "slug"),
        ({"sampling": {"temperature": 9}}, "sampling"),
        ({"capture_tokens": True, "wire": "responses"}, "capture_tokens"),
        ({"model_name": ""}, "model_name"),
        ({"base_url": ""}, "base_url"),
    ],
)
def test_what_cannot_work_is_refused_by_field(fields, field, settings):
    settings.OUTBOUND_ALLOW = []
    before = PolicyModel.objects.count()
    with pytest.raises(ValidationError) as caught:
        save_policy_model(policy_model=endpoint(**fields), api_key=None, user=None)
    assert field in caught.value.message_dict
    assert PolicyModel.objects.count() == before


def test_all_that_is_wrong_is_raised_at_once(settings):
    settings.OUTBOUND_ALLOW = []
    wrong = {"slug": "not a slug", "base_url": "http://10.0.0.1/", "model_name": "", "sampling": {"top_p": "x"}}
    with pytest.raises(ValidationError) as caught:
        save_policy_model(policy_model=endpoint(**wrong), api_key=None, user=None)
    assert set(caught.value.message_dict) == set(wrong)


def test_the_operators_allow_list_opens_a_private_base_url(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1:8000"]
    save_policy_model(policy_model=endpoint(base_url="http://127.0.0.1:8000/v1"), api_key=None, user=None)
    assert PolicyModel.objects.get().base_url == "http://127.0.0.1:8000/v1"


def test_what_the_health_check_saw_is_forgotten_when_the_endpoint_changes():
    row = saved()
    row.health, row.health_message = Health.HEALTHY, "fine"
    row.save()
    row.name = "Other"
    save_policy_model(policy_model=row, api_key=None, user=None)
    assert PolicyModel.objects.get().health == Health.HEALTHY
    row.model_name = "other"
    save_policy_model(policy_model=row, api_key=None, user=None)
    assert PolicyModel.objects.get().health == Health.UNKNOWN


def test_every_save_is_audited_without_the_key():
    user = make_user()
    row = save_policy_model(policy_model=endpoint(), api_key=KEY, user=user)
    save_policy_model(policy_model=row, api_key=None, user=user)
    entries = AuditEntry.objects.filter(action__startswith="policy_model.").order_by("id")
    assert [(entry.user, entry.action, entry.target, entry.detail["key_changed"]) for entry in entries] == [
        (user, "policy_model.create", "qwen", True),
        (user, "policy_model.change", "qwen", False),
    ]
    assert KEY not in str(list(entries.values()))


def test_a_row_that_was_deleted_meanwhile_is_not_brought_back():
    row = make_policy_model()
    PolicyModel.objects.filter(pk=row.pk).delete()
    with pytest.raises(RowDeleted):
        save_policy_model(policy_model=row, api_key=None, user=None)
    assert not PolicyModel.objects.filter(slug=row.slug).exists()


@pytest.mark.parametrize(
    "name", ["Authorization", "api-key", "X-Api-Key", "Ocp-Apim-Subscription-Key", "X-Auth-Token", "x-secret", "Cookie"]
)
def test_a_secret_in_a_header_is_refused_except_the_key_placeholder(name):
    with pytest.raises(ValidationError) as wrong:
        saved(extra_headers={name: "s3cr3t-value"})
    assert list(wrong.value.message_dict) == ["extra_headers"]
    assert not PolicyModel.objects.exists()
    assert saved(extra_headers={name: "{api_key}"}).extra_headers == {name: "{api_key}"}


def test_headers_that_only_sound_like_secrets_are_fine():
    headers = {"X-Token-Budget": "100", "X-Keyboard": "us", "X-Team": "rl", "X-Session-Group": "a"}
    assert saved(extra_headers=headers).extra_headers == headers


@pytest.mark.parametrize("key", ["sk-1\r\nX-Evil: 1", "ключ", "sk\x00"])
def test_a_key_that_no_header_can_carry_is_refused(key):
    with pytest.raises(ValidationError) as wrong:
        save_policy_model(policy_model=endpoint(), api_key=key, user=None)
    assert list(wrong.value.message_dict) == ["api_key"]
    assert "one line of ASCII" in wrong.value.messages[0]
    assert not PolicyModel.objects.exists()


def test_a_name_that_resolves_to_a_private_address_is_refused_on_saving(monkeypatch, settings):
    monkeypatch.setattr(lookups, "look_up", lambda host, port: ["10.0.0.7"] if host == "inner.example" else [])
    for fields in (
        {"base_url": "http://inner.example:8000/v1"},
        {"more_base_urls": ["http://inner.example:8000/v1"], "provider": Provider.VLLM},
    ):
        with pytest.raises(ValidationError) as refused:
            saved(**fields)
        [message] = refused.value.messages
        assert "add inner.example:8000 to GYMWEB_OUTBOUND_ALLOW" in message
    assert not PolicyModel.objects.filter(slug="qwen").exists()
    settings.OUTBOUND_ALLOW = ["inner.example:8000"]
    assert saved(base_url="http://inner.example:8000/v1").pk


VENDOR = "ghp_AbCdEf0123456789AbCdEf0123456789ZZZZ"


@pytest.mark.parametrize(
    ("field", "extras"),
    [
        ("extra_headers", {"X-Foo": f"Bearer {VENDOR}"}),
        ("extra_headers", {"X-Foo": f"{{api_key}} {VENDOR}"}),
        ("extra_body", {"api_key": "swordfish"}),
        ("extra_body", {"x": "sk-proj-AbCdEf0123456789AbCdEf0123456789ZZZZ"}),
        ("extra_body", {"deep": [{"password": "swordfish"}]}),
    ],
)
def test_a_credential_among_headers_and_in_the_body_is_refused_and_said_where_it_belongs(field, extras):
    with pytest.raises(ValidationError) as refused:
        saved(**{field: extras})
    (message,) = refused.value.message_dict[field]
    assert f"{next(iter(extras))} looks like a credential" in message
    assert "{api_key}" in message


def test_harmless_headers_and_body_fields_are_kept():
    headers = {"Authorization": "Token {api_key}", "X-Team": "reinforcement"}
    body = {"max_tokens": 4096, "chat_template_kwargs": {"enable_thinking": True}, "token": "hello"}
    row = saved(extra_headers=headers, extra_body=body)
    assert (row.extra_headers, row.extra_body) == (headers, body)


def test_a_row_older_than_the_rule_is_shown_without_its_credentials():
    member_client = client_of(Role.VIEWER)
    make_policy_model(slug="old", provider=Provider.COMPATIBLE, base_url="https://m.example/v1", model_name="m")
    PolicyModel.objects.filter(slug="old").update(
        extra_headers={"X-Foo": VENDOR, "X-Team": "a"}, extra_body={"api_key": "swordfish"}
    )
    shown = member_client.get("/api/v1/policy-models/old/").json()
    assert shown["extra_headers"] == {"X-Foo": "[REDACTED:github_token]", "X-Team": "a"}
    assert shown["extra_body"] == {"api_key": "[REDACTED:named]"}
