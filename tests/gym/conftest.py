"""Checks of what the tests of this folder capture."""

import pytest
from msgspec.structs import replace

from apps.gym.traces.events import ModelCall
from apps.gym.traces.relinking import relink
from tests.gym.captured_calls import Recorder


@pytest.fixture(autouse=True)
def captured_traces_keep_their_links():
    """Every trace that a test captures has the links that a recheck derives, also without its thread ids."""
    Recorder.made.clear()
    yield
    for recorder in Recorder.made:
        if not recorder.in_flight:
            assert relink(recorder.events) == {}
            old = [replace(one, thread=None) if isinstance(one, ModelCall) else one for one in recorder.events]
            assert relink(old) == {}
