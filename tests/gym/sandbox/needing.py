"""Tests that run code: where no sandbox can be made they are skipped, by a line that says why."""

import pytest

from apps.gym.sandbox.choosing import Choice, ChosenSandbox

MISSING = ChosenSandbox(Choice(at_once=1)).find_problem()
needs_sandbox = pytest.mark.skipif(bool(MISSING), reason=f"SKIPPED by name: the sandbox: {MISSING}")
RUN_CODE = {"code_exec"}


def environments(names):
    """Names for `parametrize`, those of environments that run code with the mark."""
    return [pytest.param(name, marks=needs_sandbox) if name in RUN_CODE else name for name in sorted(names)]
