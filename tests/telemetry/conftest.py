"""A receiver, and this process sending to it."""

from collections.abc import Iterator

import pytest

from apps.accounts.telemetry import exporters
from apps.accounts.telemetry.exporters import start_telemetry, stop_telemetry
from tests.telemetry.otlp_receiver import Inbox, receive


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with receive() as found:
        yield found


@pytest.fixture
def sending(inbox, monkeypatch, settings):
    """This process sends spans to the receiver. Call the result to send what is left and stop."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", inbox.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20gw_abc")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    monkeypatch.setattr(exporters.atexit, "register", lambda work: work)
    settings.SEND_SPANS = True
    start_telemetry("worker")
    yield stop_telemetry
    stop_telemetry()
