"""A fixture for tests that count queries."""

import math

import pytest

from apps.policies import installation_redactor


@pytest.fixture(autouse=True)
def steady_redactor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reload the redactor only when a pattern or secret changes, so that query counts do not depend on the clock."""
    monkeypatch.setattr(installation_redactor, "FRESH_SECONDS", 3600.0)
    monkeypatch.setattr(installation_redactor._known, "redactor", None)
    monkeypatch.setattr(installation_redactor._known, "until", math.inf)
