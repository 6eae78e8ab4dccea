"""Which replies of an endpoint are throttling, and which say that a quota is exhausted."""

import orjson
import pytest

from apps.gym.calls.outbound import OutboundReply
from apps.gym.calls.refusals import is_quota_exhausted, is_throttled, reveal_error


def reply(status, *, headers=None, **error):
    return OutboundReply(status, headers or {}, orjson.dumps({"error": {"message": "No.", **error}}), {})


@pytest.mark.parametrize(
    "code",
    [
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
    ],
)
def test_a_used_up_quota_is_not_throttling(code):
    for refusal in (reply(429, code=code), reply(429, type=code, code=None), reply(429, type="tokens", code=code)):
        assert is_quota_exhausted(refusal)
        assert not is_throttled(refusal)


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "slow_down", "429", None])
def test_a_reached_rate_limit_is_throttling(code):
    refusal = reply(429, type="requests", code=code)
    assert is_throttled(refusal)
    assert not is_quota_exhausted(refusal)


def test_payment_required_is_an_exhausted_quota_whatever_its_body():
    assert is_quota_exhausted(OutboundReply(402, {}, b"<html>", {}))


def test_an_unavailable_server_is_throttling_only_if_it_says_when_to_come_back():
    assert not is_throttled(reply(503))
    assert is_throttled(reply(503, headers={"Retry-After": "2"}))
    assert is_throttled(reply(529))


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'"slow down"', b'{"error": "slow down"}', b'{"error": [1]}'])
def test_any_body_of_a_429_can_be_read(body):
    assert is_throttled(OutboundReply(429, {}, body, {}))


def test_a_credit_balance_that_is_too_low_is_an_exhausted_quota():
    message = "Your credit balance is too low to access the Anthropic API."
    assert is_quota_exhausted(reply(400, type="invalid_request_error", message=message))
    assert not is_quota_exhausted(reply(400, type="invalid_request_error", message="max_tokens is too large"))


@pytest.mark.parametrize(("code", "status"), [(429, 429), (502, 502), (200, 200), ("rate_limit", 200), (None, 200)])
def test_an_error_in_a_successful_reply_has_its_own_status(code, status):
    assert reveal_error(reply(200, code=code)).status == status


def test_a_throttled_call_that_was_answered_200_waits():
    assert is_throttled(reveal_error(reply(200, code=429)))


@pytest.mark.parametrize("body", [b"", b'{"error": {"code": 429', b'{"choices": [], "error": {"code": 429}}', b"[]"])
def test_other_successful_replies_are_unchanged(body):
    whole = OutboundReply(200, {}, body, {})
    assert reveal_error(whole) is whole
