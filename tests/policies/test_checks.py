"""The allow list for outbound calls is read when a process starts, not when it first calls."""

from django.core.checks import run_checks


def test_every_entry_that_cannot_be_read_is_named(settings):
    settings.OUTBOUND_ALLOW = ["10.0.0.0/8", "10.0.0.0/99", "127.0.0.1:8000", "http://model"]
    found = run_checks()
    assert [one.id for one in found] == ["policies.E001", "policies.E001"]
    assert [one.msg.split(" is neither")[0] for one in found] == [
        "GYMWEB_OUTBOUND_ALLOW: '10.0.0.0/99'",
        "GYMWEB_OUTBOUND_ALLOW: 'http://model'",
    ]
