"""`gymweb run` starts and ends NeMo Gym's examples, unmodified."""

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.deadlines import DEADLINE
from tests.gymweb.test_run import Running, read_table
from tests.migrated import lay_out
from tests.nemo_gym.real.installed import PACKAGES, PYTHON, needs_nemo_gym

pytestmark = needs_nemo_gym
MODEL = "responses_api_models/openai_model/configs/openai_model.yaml"
SETTINGS = "policy_base_url: http://127.0.0.1:9/v1\npolicy_api_key: sk-none\npolicy_model_name: none\n"
KINDS = ["agent", "environment server", "model", "resource server", "web and worker"]
EXAMPLES = [
    "example_single_tool_call",
    "example_multi_step",
    "example_session_state_mgmt",
    "example_multi_turn_gymnasium",
]


class Example(Running):
    @property
    def variables(self) -> dict[str, str]:
        """Environment servers begin a Ray cluster, whose sockets need a short path."""
        return {**super().variables, "RAY_TMPDIR": str(self.short)}

    short: Path


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Example]:
    given = Example(tmp_path)
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        given.short = Path(short)
        yield given
        for pid in given.left():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_starts_is_registered_and_ends(running: Example, tmp_path: Path, example: str) -> None:
    lay_out(tmp_path / "var.sqlite3")
    (tmp_path / "env.yaml").write_text(SETTINGS)
    own = PACKAGES / "resources_servers" / example / "configs" / f"{example}.yaml"
    python = PYTHON
    with running.begin("--config", str(own), "--config", MODEL, "--python", python) as process:
        rows = read_table(process)
        assert [sorted(row["kind"] for row in rows.values()), {row["health"] for row in rows.values()}] == [
            KINDS,
            {"healthy"},
        ]
        (server,) = (row for row in rows.values() if row["kind"] == "resource server")
        with urlopen(f"{server['address']}/openapi.json") as reply:
            assert {"/seed_session", "/reset"} & json.load(reply)["paths"].keys()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 0
        assert process.stderr
        assert f"created environment {server['name']} {server['address']}" in process.stderr.read()
    assert running.left() == []
