"""Tests that run code: where no sandbox can be made they are skipped, by a line that says why."""

import pytest

from apps.gym.sandbox.choosing import Choice, ChosenSandbox
from apps.gym.sandbox.control_groups import NotDelegated, find_place
from apps.gym.sandbox.memory_groups import MemoryGroup


def find_what_lacks():
    """Why no control group with a bound on memory can be made here, or nothing."""
    try:
        MemoryGroup(find_place(), max_bytes=2**28).remove()
    except (NotDelegated, OSError) as why:
        return str(why)
    return ""


MISSING = ChosenSandbox(Choice(at_once=1)).find_problem()
NO_GROUP = MISSING or find_what_lacks()
needs_group = pytest.mark.skipif(bool(NO_GROUP), reason=f"SKIPPED by name: a control group for memory: {NO_GROUP}")
needs_sandbox = pytest.mark.skipif(bool(MISSING), reason=f"SKIPPED by name: the sandbox: {MISSING}")
RUN_CODE = {"code_exec"}


def environments(names):
    """Names for `parametrize`, those of environments that run code with the mark."""
    return [pytest.param(name, marks=needs_sandbox) if name in RUN_CODE else name for name in sorted(names)]


def most_used(sandbox):
    """The bytes that all executions held together at most."""
    group = sandbox._memory.open()
    return int((group.folder / ("memory.max_usage_in_bytes" if group.version == 1 else "memory.peak")).read_text())
