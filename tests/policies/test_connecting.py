"""From a row to a client."""

import re

import pytest

from apps.gym.calls.outbound_policy import OutboundRefused
from apps.gym.traces.items import message
from apps.gym.wires.openai_http import HttpPolicy
from apps.gym.wires.protocol import Ask
from apps.gym.wires.scripted import ScriptedPolicy
from apps.policies.endpoint_health import probe_policy_model
from apps.policies.model_trial import try_model
from apps.policies.models import Provider
from apps.policies.policy_clients import KeyMissing, RequestRefused, connect_policy, open_outbound, rebuild_request
from apps.policies.secrets import SecretUnreadable, encrypt_secret
from tests.factories import make_policy_model

pytestmark = pytest.mark.django_db
ENDPOINT = {"provider": Provider.COMPATIBLE, "base_url": "http://a.example/v1", "model_name": "m"}


def test_a_scripted_model_makes_mistakes_at_its_own_rate():
    policy = connect_policy(make_policy_model(mistake_rate=0.25), open_outbound())
    assert isinstance(policy, ScriptedPolicy)
    assert policy.mistake_rate == 0.25


@pytest.mark.parametrize(
    ("wire", "path"), [("chat", "chat/completions"), ("responses", "responses"), ("messages", "messages")]
)
def test_an_endpoint_is_spoken_to_over_its_wire(wire, path):
    provider = {"provider": Provider.ANTHROPIC} if wire == "messages" else {}
    key = encrypt_secret("sk-0123456789")
    row = make_policy_model(wire=wire, api_key_encrypted=key, **{**ENDPOINT, **provider})
    policy = connect_policy(row, open_outbound())
    assert isinstance(policy, HttpPolicy)
    assert repr(policy) == f"HttpPolicy('m' at http://a.example/v1/{path})"


def test_a_key_that_cannot_be_read_is_a_policy_error():
    row = make_policy_model(api_key_encrypted="damaged", **ENDPOINT)
    with pytest.raises(SecretUnreadable):
        connect_policy(row, open_outbound())


def test_the_operators_allow_list_rules_the_connections(settings):
    settings.OUTBOUND_ALLOW = ["10.1.2.3"]
    outbound = open_outbound()
    outbound.policy.check_url("http://10.1.2.3/")
    with pytest.raises(OutboundRefused):
        outbound.policy.check_url("http://10.1.2.4/")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"extra_headers": {"host": "other"}}, "Invalid extra headers: host "),
        ({"extra_headers": {"Transfer-Encoding": "chunked"}}, "Transfer-Encoding is set"),
        ({"extra_headers": {"X-Team": "é"}}, "X-Team must be one line"),
        ({"extra_headers": {"X Team": "rl"}}, "'X Team' is not"),
        ({"extra_headers": {"X-Api-Key": "s3cret"}}, "X-Api-Key is secret"),
        ({"extra_headers": ["Host"]}, "Invalid extra headers: "),
        ({"extra_body": {"n": 3}}, "Invalid extra body: n "),
        ({"renamed_fields": {"messages": "model"}}, "No field can be renamed to model"),
        ({"base_url": "http://a.example/v1?api_key=s3cret"}, "a query or fragment"),
        ({"more_base_urls": ["http://a.example/v1#x"]}, "Invalid more base urls: "),
    ],
)
@pytest.mark.parametrize("provider", [Provider.COMPATIBLE, Provider.OPENAI])
def test_a_row_that_is_older_than_a_rule_is_refused_before_anything_is_sent(provider, fields, why):
    given = {**ENDPOINT, "provider": provider, "api_key_encrypted": encrypt_secret("sk-0123456789"), **fields}
    with pytest.raises(RequestRefused, match=re.escape(why)) as refusal:
        connect_policy(make_policy_model(**given), open_outbound())
    assert "save the model" in str(refusal.value)
    assert ("s3cret" in str(refusal.value), refusal.value.transient) == (False, False)


def test_such_a_row_says_why_in_its_health_and_where_it_is_tried():
    row = make_policy_model(**ENDPOINT, extra_headers={"Host": "other"})
    assert probe_policy_model(policy_model=row).health == "unhealthy"
    assert row.health_message.startswith("Invalid extra headers: Host ")
    (_, told) = try_model(policy_model=row, prompt="Hi", user=None).events
    assert told.message == row.health_message


def sent_headers(provider=Provider.COMPATIBLE, **fields):
    given = {**ENDPOINT, "provider": provider, "api_key_encrypted": encrypt_secret("sk-0123456789"), **fields}
    policy = connect_policy(make_policy_model(**given), open_outbound())
    return {name: value for name, value in policy.sender._headers.items() if name != "Content-Type"}


def test_a_key_is_a_bearer_token_unless_a_header_carries_it():
    team = {"X-Team": "rl"}
    assert sent_headers(extra_headers=team) == {"X-Team": "rl", "Authorization": "Bearer sk-0123456789"}
    assert sent_headers(extra_headers={**team, "X-Auth-Token": "{api_key}"}) == {
        "X-Team": "rl",
        "X-Auth-Token": "sk-0123456789",
    }
    assert sent_headers(extra_headers={"Authorization": "Token {api_key}"}) == {"Authorization": "Token sk-0123456789"}


def test_anthropic_gets_its_key_and_version_in_its_own_headers():
    def sent(**fields):
        return sent_headers(Provider.ANTHROPIC, wire="messages", **fields)

    version = {"anthropic-version": "2023-06-01"}
    assert sent() == {**version, "x-api-key": "sk-0123456789"}
    assert sent(api_key_encrypted="") == version
    beta = {"anthropic-beta": "context-1m", "Anthropic-Version": "2030-01-01"}
    assert sent(extra_headers=beta) == {**beta, "x-api-key": "sk-0123456789"}
    bearer = {"Authorization": "Bearer {api_key}"}
    assert sent(extra_headers=bearer) == {**version, "Authorization": "Bearer sk-0123456789"}


def test_a_header_that_needs_a_key_is_not_sent_without_one():
    with pytest.raises(KeyMissing, match="a header needs it"):
        sent_headers(extra_headers={"X-Auth-Token": "{api_key}"}, api_key_encrypted="")


@pytest.mark.parametrize(
    ("capabilities", "limit"),
    [
        ({}, 8192),
        ({"max_model_len": 1024}, 512),
        ({"max_model_len": 200_000, "max_output_tokens": 4096}, 4096),
        ({"max_model_len": 200_000, "max_output_tokens": 64_000}, 8192),
    ],
)
def test_the_limit_over_the_messages_api_is_what_the_model_can_write(capabilities, limit):
    model = make_policy_model(
        provider="anthropic",
        wire="messages",
        base_url="https://api.anthropic.com/v1",
        model_name="x",
        capabilities=capabilities,
    )
    _, body = rebuild_request(policy_model=model, ask=Ask(items=[message("user", "Hi")]))
    assert body["max_tokens"] == limit
