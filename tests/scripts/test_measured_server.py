"""What a process takes is measured with its children, each counted once."""

import os
import signal
import subprocess
import sys

import pytest

from scripts.measured_server import _children, _tree_rss
from scripts.measuring import MB

FORKED = """
import os, sys, time
held = b"x" * (64 * 1024 * 1024)
child = os.fork()
if not child and sys.argv[1] == "program":
    os.execvp(sys.executable, [sys.executable, "-c", "import time; print('there', flush=True); time.sleep(60)"])
elif child and sys.argv[1] == "fork":
    print("there", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("kind", "children"), [("fork", 0), ("program", 1)])
def test_a_child_counts_once_it_is_a_program_of_its_own(kind: str, children: int) -> None:
    words = [sys.executable, "-c", FORKED, kind]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"there\n"
            assert len(_children(process.pid)) == children
            assert 64 * MB < _tree_rss(process.pid) < 128 * MB
        finally:
            os.killpg(process.pid, signal.SIGKILL)
