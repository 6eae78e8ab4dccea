"""Providers: what each of them needs, and what the engine speaks to them."""

import asyncio

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from apps.gym.wires.openai_http import HttpPolicy
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import connect_policy, open_outbound
from apps.policies.policy_model_changes import KeyRequired, save_policy_model
from apps.policies.secrets import encrypt_secret
from tests.factories import make_policy_model

pytestmark = pytest.mark.django_db

NEW = {"slug": "new-one", "name": "New", "provider": "vllm", "base_url": "https://a.example/v1", "model_name": "m"}


def save(**fields):
    return save_policy_model(policy_model=PolicyModel(**{**NEW, **fields}), api_key=None, user=None)


@pytest.mark.parametrize(
    ("provider", "wire", "fields", "address"),
    [
        ("openai", "responses", {"base_url": "https://api.openai.com/v1"}, "https://api.openai.com/v1/responses"),
        (
            "azure",
            "chat",
            {"base_url": "https://r.openai.azure.com", "api_version": "2025-04-01-preview"},
            "https://r.openai.azure.com/openai/chat/completions",
        ),
        (
            "anthropic",
            "messages",
            {"base_url": "https://api.anthropic.com/v1"},
            "https://api.anthropic.com/v1/messages",
        ),
        (
            "vllm",
            "chat",
            {"base_url": "https://a.example/v1", "more_base_urls": ["https://b.example/v1"]},
            "https://a.example/v1/chat/completions, https://b.example/v1/chat/completions",
        ),
    ],
)
def test_each_provider_is_spoken_to_at_its_own_address(provider, wire, fields, address):
    row = make_policy_model(
        provider=provider, wire=wire, model_name="m", api_key_encrypted=encrypt_secret("sk-0123456789"), **fields
    )
    outbound = open_outbound()
    policy = connect_policy(row, outbound)
    assert isinstance(policy, HttpPolicy)
    assert repr(policy) == f"HttpPolicy('m' at {address})"
    asyncio.run(outbound.close())


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"provider": "azure"}, {"api_version": ["needs an API version"]}),
        (
            {"provider": "openai", "more_base_urls": ["https://b.example/v1"]},
            {"more_base_urls": ["several base URLs"]},
        ),
        ({"more_base_urls": "https://b.example"}, {"more_base_urls": ["a list of base"]}),
        (
            {"extra_headers": {"Authorization": "Bearer x"}},
            {"extra_headers": ["Authorization is secret"]},
        ),
        (
            {"extra_headers": {"X-Team": "a\r\nHost: b"}},
            {"extra_headers": ["X-Team must be one line"]},
        ),
        (
            {"extra_headers": {"X-Team": "é"}},
            {"extra_headers": ["X-Team must be one line"]},
        ),
        *(
            (
                {"extra_headers": {name: "1"}},
                {"extra_headers": [f"{name} is set by"]},
            )
            for name in ("Host", "content-length", "Transfer-Encoding", "Content-Encoding", "Connection", "EXPECT")
        ),
        ({"extra_headers": {"X Team": "a"}}, {"extra_headers": ["'X Team' is not"]}),
        (
            {"renamed_fields": {"max_completion_tokens": 3}},
            {"renamed_fields": ["names and new names"]},
        ),
        (
            {"provider": "openai", "capture_tokens": True},
            {"capture_tokens": ["does not return token IDs"]},
        ),
        (
            {"provider": "anthropic", "capture_tokens": True},
            {"capture_tokens": ["does not return token IDs"]},
        ),
        ({"wire": "messages"}, {"wire": ["Only the provider Anthropic"]}),
        ({"extra_body": [1]}, {"extra_body": ["a JSON object"]}),
        *(
            (
                {"extra_body": {name: []}},
                {"extra_body": [f"{name} is set by"]},
            )
            for name in ("messages", "model", "input", "tools", "n", "system")
        ),
        (
            {"extra_body": {"stream": True}, "wire": "responses"},
            {"extra_body": ["Streaming needs Chat Completions."]},
        ),
        (
            {"renamed_fields": {"messages": "model", "a": "b", "c": "b"}},
            {"renamed_fields": ["renamed to b,", "renamed to model,"]},
        ),
        *(
            (
                {"base_url": f"https://a.example/v1{end}"},
                {"base_url": ["a query or fragment"]},
            )
            for end in ("?api_key=abc", "#there")
        ),
    ],
)
def test_fields_that_a_provider_cannot_use_are_refused(fields, wrong):
    with pytest.raises(ValidationError) as refusal:
        save(**fields)
    found = refusal.value.message_dict
    assert {field: len(messages) for field, messages in found.items()} == {key: len(wrong[key]) for key in wrong}
    for field, parts in wrong.items():
        assert [part in message for part, message in zip(parts, found[field], strict=True)] == [True] * len(parts)


def test_anthropic_has_its_own_wire_and_address():
    row = save(provider="anthropic", wire="chat", base_url="")
    assert (row.wire, row.base_url) == ("messages", "https://api.anthropic.com/v1")


def test_the_database_keeps_the_wire_of_anthropic():
    for fields in ({"provider": "anthropic", "wire": "chat"}, {"provider": "vllm", "wire": "messages"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            make_policy_model(base_url="https://a.example/v1", model_name="m", **fields)


def test_a_further_server_may_not_be_an_address_that_is_closed():
    with pytest.raises(ValidationError, match="GYMWEB_OUTBOUND_ALLOW"):
        save(more_base_urls=["http://10.0.0.1/v1"])


def test_a_key_goes_to_no_further_server_unless_it_is_entered_again():
    row = save_policy_model(policy_model=PolicyModel(**NEW), api_key="sk-0123456789", user=None)
    row.more_base_urls = ["https://b.example/v1"]
    with pytest.raises(KeyRequired):
        save_policy_model(policy_model=row, api_key=None, user=None)
    save_policy_model(policy_model=row, api_key="sk-0123456789", user=None)
    row.base_url, row.more_base_urls = "https://b.example/v1", []
    assert save_policy_model(policy_model=row, api_key=None, user=None).api_key_hint


def test_a_model_says_how_it_speaks():
    row = make_policy_model(
        provider="compatible",
        base_url="https://a.example/v1",
        model_name="m",
        wire="chat",
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
        renamed_fields={"max_completion_tokens": "max_tokens"},
        reasoning="text",
        version="step-100",
    )
    policy = connect_policy(row, open_outbound())
    assert isinstance(policy, HttpPolicy)
    finished = policy._dialect.finish({"max_completion_tokens": 8})
    assert finished == {"max_tokens": 8, "chat_template_kwargs": {"enable_thinking": False}}
    assert (policy._dialect.reasoning, policy.weights.version) == ("text", "step-100")
