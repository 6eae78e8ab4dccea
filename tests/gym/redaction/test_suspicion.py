"""The search that runs on every event finds whatever a rule would replace."""

from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.gym.redaction.credential_rules import ASSIGNED, CURL_USER, FORMS, OPTION, QUOTED
from apps.gym.redaction.redactor import Pattern, Redactor

RULES = [form.expression for form in FORMS] + [QUOTED, ASSIGNED, OPTION, CURL_USER]


@pytest.mark.parametrize("expression", RULES, ids=lambda expression: expression.pattern[:40])
def test_nothing_that_a_rule_matches_is_missed_in_text_or_json(expression):
    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.from_regex(expression))
    def check(text):
        redactor, found = Redactor(), Counter()
        redactor._clean(text, found)
        if found:
            assert redactor.is_suspicious(text)
            assert redactor.is_suspicious(msgspec.json.encode({"text": text}).decode())

    check()


@pytest.mark.parametrize(
    "text",
    [
        '{"at": 12.345678901234567, "id": "chatcmpl-0123456789abcdef0123456789abcdef", "duration": 0.0012345678901234}',
        '{"id": "resp_68e5f0a1b2c3d4e5f60718293a4b5c6d7e8f9012", "call_id": "call_0123456789abcdef01234567"}',
        '{"usage": {"input_tokens": 1234567890123456789, "output_tokens": 17}, "cached_tokens": 0}',
        '{"sha": "da39a3ee5e6b4b0d3255bfef95601890afd80709", "uuid": "123e4567-e89b-12d3-a456-426614174000"}',
    ],
)
def test_ids_times_and_numbers_of_events_are_not_suspicious(text):
    assert not Redactor(known=["a" * 40], patterns=[Pattern(kind="own", name="badge")]).is_suspicious(text)


def test_own_secrets_names_and_prefixes_are_suspicious_in_any_alphabet():
    patterns = [Pattern(kind="own", name="Schlüssel"), Pattern(kind="own", prefix="zz#")]
    redactor = Redactor(known=["Größe(1)*[2]-geheim"], patterns=patterns)
    for text in ("x Größe(1)*[2]-geheim y", '{"schlüssel": "abcdef"}', "SCHLüSSEL: abcdef", "zz#0123456789abcdef0123"):
        assert redactor.is_suspicious(text), text
    assert not redactor.is_suspicious("Größe(1)*[2]-gehei")
