"""A stored API key is sent only to the URL that it was entered for. Changing the URL requires the key again."""

import json

import pytest
from django.test import Client

from apps.accounts.models import AuditEntry
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import stored_key
from tests.api.conftest import client_of
from tests.dashboard.test_models import GIVEN
from tests.factories import make_user

pytestmark = pytest.mark.django_db

SECRET = "sk-live-0123456789abcdef"
HEADERS = {"X-Auth-Token": "{api_key}"}
MOVES = {
    "openai": (
        {"provider": "openai", "base_url": "", "wire": "responses"},
        {"base_url": "https://evil.example/v1"},
    ),
    "azure": (
        {"provider": "azure", "base_url": "https://res.openai.azure.com", "api_version": "2025-04-01-preview"},
        {"base_url": "https://evil.openai.azure.com"},
    ),
    "azure with a token": (
        {
            "provider": "azure",
            "base_url": "https://res.openai.azure.com",
            "api_version": "2025-04-01-preview",
            "key_is_token": True,
        },
        {"base_url": "https://evil.openai.azure.com"},
    ),
    "vllm": ({"provider": "vllm", "base_url": "https://a.example/v1"}, {"base_url": "https://evil.example/v1"}),
    "vllm, another server": (
        {"provider": "vllm", "base_url": "https://a.example/v1", "more_base_urls": ["https://b.example/v1"]},
        {"more_base_urls": ["https://b.example/v1", "https://evil.example/v1"]},
    ),
    "vllm, another port": (
        {"provider": "vllm", "base_url": "https://a.example:8000/v1"},
        {"base_url": "https://a.example:8001/v1"},
    ),
    "compatible": (
        {"provider": "compatible", "base_url": "https://a.example/v1"},
        {"base_url": "http://a.example/v1"},
    ),
    "compatible with the key in a header": (
        {"provider": "compatible", "base_url": "https://a.example/v1", "extra_headers": HEADERS},
        {"base_url": "https://evil.example/v1"},
    ),
    "compatible to openai's own": (
        {"provider": "compatible", "base_url": "https://a.example/v1"},
        {"provider": "openai", "base_url": "", "wire": "responses"},
    ),
}


def as_typed(fields: dict) -> dict:
    """What a browser sends for these values."""
    typed = {**GIVEN, "wire": "chat"}
    for name, value in fields.items():
        if isinstance(value, list):
            typed[name] = "\n".join(value)
        elif isinstance(value, dict):
            typed[name] = json.dumps(value)
        elif value is True:
            typed[name] = "on"
        else:
            typed[name] = value
    return typed


def by_form(fields: dict, key: str, *, create: bool = False) -> int:
    client = Client()
    client.force_login(make_user())
    url = "/models/new/" if create else "/models/qwen/edit/"
    return client.post(url, {**as_typed(fields), "api_key": key}).status_code


def by_api(fields: dict, key: str, *, create: bool = False) -> int:
    client = client_of("engineer")
    body = {**fields, **({"api_key": key} if key else {})}
    if create:
        body |= {"slug": "qwen", "name": "Qwen", "model_name": "qwen3"}
    url = "/api/v1/policy-models/" + ("" if create else "qwen/")
    answer = client.generic("POST" if create else "PATCH", url, json.dumps(body), content_type="application/json")
    return answer.status_code


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize(("change", "made", "moved", "refused"), [(by_form, 302, 302, 422), (by_api, 201, 200, 400)])
def test_another_address_needs_the_key_again(settings, change, made, moved, refused, move):
    settings.OUTBOUND_ALLOW = ["a.example", "b.example"]
    first, then = MOVES[move]
    assert change(first, SECRET, create=True) == made
    before = PolicyModel.objects.values().get()
    wanted = {**first, **then} if change is by_form else then
    assert change(wanted, "") == refused
    assert PolicyModel.objects.values().get() == before
    assert change(wanted, "sk-another-one-5678") == moved
    row = PolicyModel.objects.get()
    assert stored_key(row) == "sk-another-one-5678"
    assert (row.health, row.health_checked_at) == ("unknown", None)
    assert SECRET not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize(("change", "made", "kept"), [(by_form, 302, 302), (by_api, 201, 200)])
def test_what_moves_nothing_needs_no_key(change, made, kept):
    first = {"provider": "vllm", "base_url": "https://a.example/v1", "more_base_urls": ["https://b.example/v1"]}
    assert change(first, SECRET, create=True) == made
    fewer = {**first, "base_url": "https://b.example/v1/", "more_base_urls": [], "version": "step-2"}
    assert change(fewer, "") == kept
    assert stored_key(PolicyModel.objects.get()) == SECRET
