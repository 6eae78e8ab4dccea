"""What every test begins with."""

import math
import tempfile
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import OperationalError, connection
from django.test import override_settings
from hypothesis import HealthCheck, settings
from pytest_django.plugin import blocking_manager_key

from apps.accounts import disk_space
from apps.exports import export_jobs
from apps.gym.calls import lookups
from apps.tasks import upload_jobs

# By default Hypothesis fails an example that takes over 200 ms, and draws new examples in each run.
# `pytest --hypothesis-profile default` still does that.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

BEFORE = pytest.StashKey[dict[str, object]]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[BEFORE] = _of_the_process()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item, nextitem):
    """Where a process stands must not reach the tests after: those start servers as other users, who may not enter
    every folder. Seen after all fixtures of the test."""
    result = yield
    marker = item.get_closest_marker("django_db")
    is_committed = (marker and marker.kwargs.get("transaction")) or "transactional_db" in getattr(
        item, "fixturenames", ()
    )
    if is_committed and nextitem:  # after the last test the database is gone
        _refill(item)
    before, now = item.stash[BEFORE], _of_the_process()
    changed = [name for name in before if before[name] != now[name]]
    assert not changed, f"the test has left another value of: {', '.join(changed)}"
    return result


def _of_the_process() -> dict[str, object]:
    return {"the folder": Path.cwd(), "the temporary folder": tempfile.tempdir or tempfile.gettempdir()}


@pytest.fixture(autouse=True)
def no_name_is_known(monkeypatch):
    """No test asks a real resolver: what names of the world stand for is not ours to say. Those that need an answer
    replace this one."""
    monkeypatch.setattr(lookups, "look_up", lambda host, port, **given: [])


@pytest.fixture(autouse=True, scope="session")
def settings_of_tests():
    """Replace settings that would slow tests down, or that tests would share. A test of such a setting sets its own.

    All tests of a process would count as one caller. A real password hash takes a quarter of a second. By default,
    WhiteNoise lists all static files for each test client.
    """
    fast = {"PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"], "WHITENOISE_AUTOREFRESH": True}
    with pytest.MonkeyPatch.context() as patch:
        # Otherwise one request in 200 deletes old counts, and makes one query more than the tests that count them
        # expect.
        patch.setattr("apps.accounts.tallies.SWEEP_ONE_IN", 2**62)
        # Otherwise the first request of each session makes more queries than the tests that count them expect.
        patch.setattr("apps.accounts.sessions.session_activity.touch_session", lambda request: None)
        # Not by the fixture `settings`: tests of judges have parameters of that name.
        with override_settings(API_RATE=0, API_ADDRESS_RATE=0, MIN_FREE_BYTES=0, **fast):
            yield


@pytest.fixture(autouse=True)
def no_disk_is_known():
    """No test sees what an earlier one measured of the disks, and none counts the queries of a probe."""
    disk_space.forget()
    disk_space._monitor._probed_at = math.inf
    yield
    disk_space.forget()
    for waits in (export_jobs._waits, upload_jobs._waits):
        waits.clear()


class DiskOfTests:
    """Every disk of GymWeb, full or not: measured ones by the reserve, that of a database server by a probe."""

    def __init__(self, settings, monkeypatch):
        self._settings, self._monkeypatch = settings, monkeypatch

    @property
    def is_measured(self) -> bool:
        """False for a database server, whose disk nobody here can measure."""
        return connection.vendor == "sqlite"

    def fill(self) -> None:
        self._settings.MIN_FREE_BYTES = 2**62
        disk_space.forget()
        if connection.vendor == "postgresql":
            self._monkeypatch.setattr(disk_space, "_probe", lambda had_failed: True)
            disk_space.note_error(OperationalError("No space left on device"))

    def free(self) -> None:
        self._settings.MIN_FREE_BYTES = 0
        self._monkeypatch.setattr(disk_space, "_probe", lambda had_failed: False)
        disk_space.forget()


@pytest.fixture
def disk(settings, monkeypatch):
    return DiskOfTests(settings, monkeypatch)


@pytest.fixture
def full_disk(disk):
    disk.fill()
    return disk


@pytest.fixture
def migrated(transactional_db):
    """A database whose rows are really committed, with the rows that migrations made."""


def _refill(item):
    """Make the rows of the migrations again. After a test whose rows were really committed, the database is empty."""
    editor = SimpleNamespace(connection=connection)
    with item.config.stash[blocking_manager_key].unblock():
        import_module("apps.environments.migrations.0001_initial").create_environments(apps, editor)
        import_module("apps.agents.migrations.0001_initial").create_default_agent(apps, editor)
