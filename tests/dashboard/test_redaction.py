"""The page of redaction: a text to try, patterns that come and go, and who may."""

import pytest

from apps.accounts.models import AuditEntry, Role
from apps.policies.installation_redactor import forget_redactor
from apps.policies.models import RedactionPattern
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def read_anew():
    forget_redactor()
    yield
    forget_redactor()


@pytest.fixture
def page(client):
    client.force_login(make_user())
    return client


def test_a_pattern_holds_for_the_next_text_until_it_is_deleted(page):
    sample = {"sample": "badge corp.abc123"}
    assert "No credentials found." in page.post("/redaction/try/", sample).content.decode()
    assert page.post("/redaction/", {"kind": "prefix", "text": "corp.", "least": 6}).status_code == 302
    tried = page.post("/redaction/try/", sample).content.decode()
    assert ("pattern × 1" in tried, "badge [REDACTED:pattern]" in tried) == (True, True)
    pattern = RedactionPattern.objects.get()
    assert page.post(f"/redaction/{pattern.pk}/delete/").status_code == 302
    assert "No credentials found." in page.post("/redaction/try/", sample).content.decode()
    actions = sorted(AuditEntry.objects.values_list("action", flat=True))
    assert actions == ["redaction_pattern.create", "redaction_pattern.delete"]


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("name", "Content", "Traces use this key"),
        ("prefix", "ab", "at least 3 characters"),
        ("name", "", "field is required"),
    ],
)
def test_a_pattern_that_would_break_traces_or_find_everything_is_refused(page, kind, text, said):
    refused = page.post("/redaction/", {"kind": kind, "text": text, "least": 16})
    assert (refused.status_code, said in refused.content.decode()) == (422, True)
    assert RedactionPattern.objects.count() == 0


def test_viewers_see_no_patterns(client):
    client.force_login(make_user(Role.VIEWER))
    assert client.get("/redaction/").status_code == 403
