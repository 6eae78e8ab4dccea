"""Repeated failures in the log: one line at the start, one a minute, one at the end."""

import logging

import pytest
from django.db import OperationalError

from apps.accounts import outage_log
from apps.accounts.outage_log import OutageLog, RetryLog

AWAY = OperationalError("connection refused")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    return OutageLog("The server", clock=clock)


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, outage_log.__name__)
    return lambda: [record.getMessage() for record in caplog.records if record.name == outage_log.__name__]


def test_an_outage_of_125_seconds_is_four_lines(log, clock, lines):
    for clock.now in range(125):
        log.failed("calls", AWAY)
        if clock.now % 2:
            log.failed("probes", AWAY)
    for clock.now in (126, 300, 301):
        log.works()
    first, *minutes, last = lines()
    assert first == "The server fails (calls), retrying: OperationalError('connection refused')"
    assert [line.split(":")[0] for line in minutes] == [
        "The server has failed for 60 s, 91 times (calls 61, probes 30)",
        "The server has failed for 120 s, 181 times (calls 121, probes 60)",
    ]
    assert last == "The server works again after 126 s (failures: 187)"


def test_what_fails_every_few_seconds_is_one_outage(log, clock, lines):
    for seconds in range(0, 50, 5):
        clock.now = seconds
        log.failed("calls", AWAY)
        clock.now = seconds + 1
        log.works()
    assert len(lines()) == 1


def test_the_next_outage_has_a_line_of_its_own(log, clock, lines):
    for seconds in (0, 20):
        clock.now = seconds
        log.failed("calls", AWAY)
        clock.now = seconds + 10
        log.works()
    assert [line.split(", retrying")[0] for line in lines()] == [
        "The server fails (calls)",
        "The server works again after 10 s (failures: 1)",
    ] * 2


def test_all_work_of_a_process_shares_the_outage_of_the_database(clock, lines, monkeypatch):
    monkeypatch.setattr(outage_log, "DATABASE", OutageLog("The database", clock=clock))
    works = [RetryLog(name, traceback=True) for name in ("claiming", "exporting", "sweeping")]
    for work in works:
        work.failed(AWAY)
    clock.now = 30
    for work in works:
        work.works()
    assert lines() == [
        "The database fails (claiming), retrying: OperationalError('connection refused')",
        "The database works again after 30 s (failures: 3)",
    ]


def test_a_bug_has_its_traceback_once(caplog):
    work = RetryLog("exporting", traceback=True)
    for _ in range(3):
        work.failed(ValueError("broken"))
    [record] = [record for record in caplog.records if record.name == outage_log.__name__]
    assert (record.levelname, record.exc_info[0]) == ("ERROR", ValueError)
