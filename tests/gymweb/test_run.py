"""`gymweb run` with real processes: start, table, a killed server, Ctrl-C, nothing left, and what it refuses."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from gymweb.supervision.stray_processes import VARIABLE
from tests.clients.command_line import CommandLine
from tests.deadlines import DEADLINE, wait_until
from tests.migrated import lay_out

pytestmark = pytest.mark.slow
# Reads its address as servers of NeMo Gym do. It leaves a process in a session of its own, as daemons are.
APP = """
import http.server, json, os, subprocess, sys
import yaml
whole = yaml.safe_load(os.environ["NEMO_GYM_CONFIG_DICT"])
(kind, inner), = whole[os.environ["NEMO_GYM_CONFIG_PATH"]].items()
(name, own), = inner.items()
if own.get("fails"):
    raise RuntimeError("the little server cannot start")
subprocess.Popen(["sleep", "1000"], start_new_session=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404 if self.path == "/" else 200)
        self.end_headers()
        self.wfile.write(json.dumps(whole).encode() if self.path == "/whole" else b"{}")

print("listening", flush=True)
http.server.ThreadingHTTPServer((own["host"], own["port"]), Handler).serve_forever()
"""
PLACE = {"little": "resources_servers", "helper": "responses_api_agents", "policy_model": "responses_api_models"}


class Running(CommandLine):
    """A folder with three servers and their configuration, and the command in it."""

    def lay_out(self) -> None:
        lay_out(self.folder / "var.sqlite3")
        blocks: dict[str, Any] = {
            "little": {"resources_servers": {"little": {"entrypoint": "app.py"}}},
            "helper": {
                "responses_api_agents": {
                    "helper": {
                        "entrypoint": "app.py",
                        "resources_server": {"type": "resources_servers", "name": "little"},
                        "model_server": {"type": "responses_api_models", "name": "policy_model"},
                    }
                }
            },
            "policy_model": {
                "responses_api_models": {
                    "openai_model": {
                        "entrypoint": "app.py",
                        "openai_base_url": "${oc.env:BASE_URL}",
                        "openai_api_key": "${policy_api_key}",
                        "openai_model": "tiny",
                    }
                }
            },
        }
        for name, block in blocks.items():
            ((kind, inner),) = block.items()
            folder = self.folder / kind / next(iter(inner))
            folder.mkdir(parents=True)
            (folder / "app.py").write_text(APP)
            self.write(name, block)
        (self.folder / "all.yaml").write_text("config_paths: [little.yaml, helper.yaml, policy_model.yaml]\n")
        (self.folder / "env.yaml").write_text("policy_api_key: sk-secret\n")

    def write(self, name: str, block: dict[str, Any]) -> None:
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump({name: block}))

    @contextmanager
    def begin(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        with self.start("gymweb", "run", "--port", "0", "--json", *words, **self.variables) as process:
            try:
                yield process
            finally:
                # Of a test that fails. The watcher then ends the servers.
                process.kill()

    @property
    def variables(self) -> dict[str, str]:
        return {
            "GYMWEB_VAR": str(self.folder / "var"),
            "GYMWEB_DATABASE_URL": f"sqlite:///{self.folder}/var.sqlite3",
            "GYMWEB_WORKER_GRACE_SECONDS": "1",
            "BASE_URL": "http://127.0.0.1:9/v1",
        }

    def refused(self, *words: str, code: int = 1) -> str:
        with self.begin(*words) as process:
            out, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == code, err
        assert out == ""
        assert self.left() == []
        return err

    def left(self) -> list[int]:
        """Processes of any run in this folder."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                given = (each / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            is_mine = f"GYMWEB_VAR={self.folder / 'var'}".encode() in given
            if is_mine and any(one.startswith(VARIABLE.encode()) for one in given):
                found.append(int(each.name))
        return found

    def find(self, name: str) -> int:
        """Process of a server."""
        wanted = f"NEMO_GYM_CONFIG_PATH={name}".encode()
        has = [pid for pid in self.left() if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
        (found,) = [pid for pid in has if b"app.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return found


def read_table(process: "subprocess.Popen[str]") -> dict[str, dict[str, str]]:
    assert process.stdout
    assert process.stderr
    rows: dict[str, dict[str, str]] = {}
    while "gymweb" not in rows:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        row = json.loads(line)
        rows[row["name"]] = row
    return rows


@pytest.fixture
def running(tmp_path: Path) -> Any:
    given = Running(tmp_path)
    given.lay_out()
    yield given
    for pid in given.left():
        os.kill(pid, signal.SIGKILL)


def test_all_servers_start_are_registered_and_end_with_ctrl_c(running: Running) -> None:
    with running.begin("--config", "all.yaml") as process:
        rows = read_table(process)
        assert {name: (row["kind"], row["health"]) for name, row in rows.items()} == {
            "little": ("resource server", "healthy"),
            "helper": ("agent", "healthy"),
            "policy_model": ("model", "healthy"),
            "gymweb": ("web and worker", "healthy"),
        }
        written = running.folder / "var" / "run" / "global_config.yaml"
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        shared = yaml.safe_load(written.read_text())
        for name, kind in PLACE.items():
            (own,) = shared[name][kind].values()
            assert rows[name]["address"] == f"http://{own['host']}:{own['port']}"
        with urlopen(f"{rows['little']['address']}/whole") as reply:
            assert json.load(reply) == shared
        with urlopen(f"{rows['helper']['address']}/whole") as reply:
            (model,) = json.load(reply)["policy_model"]["responses_api_models"].values()
        assert rows["gymweb"]["address"] == f"http://{model['host']}:{model['port']}"
        # Each server has left a process in a session of its own.
        assert len(running.left()) >= 7
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 0
        assert process.stderr
        said = process.stderr.read()
    assert running.left() == []
    assert re.search(rf"^created environment little {rows['little']['address']}$", said, re.MULTILINE)
    assert re.search(rf"^created agent helper {rows['helper']['address']};", said, re.MULTILINE)
    assert "created policy model policy_model http://127.0.0.1:9/v1" in said
    # Servers keep their ports, so that planned rollouts find them.
    with running.begin("--config", "all.yaml") as process:
        again = read_table(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    assert [again[name]["address"] for name in PLACE] == [rows[name]["address"] for name in PLACE]
    assert running.left() == []


@pytest.mark.parametrize("name", ["helper", "gymweb"])
def test_a_killed_server_is_named_and_ends_the_run(running: Running, name: str) -> None:
    with running.begin("--config", "all.yaml") as process:
        read_table(process)
        if name == "gymweb":
            (pid,) = [
                pid for pid in running.left() if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            ]
        else:
            pid = running.find(name)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        assert process.stderr
        for line in process.stderr:
            if line.startswith(f"{name} (pid {pid}) was killed by SIGKILL"):
                break
        else:
            pytest.fail("the server was not named")
        seconds = time.monotonic() - began
        rest = process.stderr.read()
        assert process.wait(DEADLINE) == 1
    assert seconds < 5
    assert ("listening" if name == "helper" else "GymWeb is at") in rest
    assert running.left() == []


def test_nothing_is_left_after_the_command_itself_was_killed(running: Running) -> None:
    with running.begin("--config", "all.yaml") as process:
        read_table(process)
        assert len(running.left()) >= 7
        process.kill()
        process.wait()
        wait_until(lambda: running.left() == [], what=lambda: f"left: {running.left()}")


def test_an_entry_point_that_raises_ends_the_run_with_its_log(running: Running) -> None:
    said = running.refused("--config", "all.yaml", "--set", "helper.responses_api_agents.helper.fails=true")
    assert re.search(r"^helper \(pid \d+\) ended with exit code 1\.", said, re.MULTILINE)
    assert "RuntimeError: the little server cannot start" in said


def test_a_port_in_use_is_refused_before_anything_starts(running: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        key = "little.resources_servers.little.port"
        said = running.refused("--config", "all.yaml", "--set", f"{key}={port}")
        assert f"{key}: 127.0.0.1:{port}: Address already in use" in said
        assert str(port) in running.refused("--config", "all.yaml", "--port", str(port))
    key = "helper.responses_api_agents.helper.port"
    twice = ("--set", f"little.resources_servers.little.port={port}", "--set", f"{key}={port}")
    assert "two servers have this port" in running.refused("--config", "all.yaml", *twice)


def test_a_server_at_a_url_is_awaited_named_while_down_and_never_started(running: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    address = ("--config", "all.yaml", "--address", f"little=http://127.0.0.1:{port}")
    said = running.refused(*address, "--set", "server_spinup_timeout_seconds=1")
    assert f"little does not answer at http://127.0.0.1:{port} after 1 s" in said
    other = running.folder / "other"
    other.mkdir()
    serving = ["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(other)]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(serving, **quiet) as server:
        try:
            with running.begin(*address) as process:
                assert read_table(process)["little"]["address"] == f"http://127.0.0.1:{port}"
                server.kill()
                began = time.monotonic()
                assert process.stderr
                assert any(line.startswith("little does not answer") for line in process.stderr)
                seconds = time.monotonic() - began
                process.send_signal(signal.SIGINT)
                assert process.wait(DEADLINE) == 0
        finally:
            server.kill()
    assert seconds < 5
    assert running.left() == []


def test_files_that_name_the_same_server_start_it_once(running: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    running.write("same", {})
    (running.folder / "same.yaml").write_text(f"little: {{resources_servers: {{little: {{port: {port}}}}}}}\n")
    with running.begin("--config", "little.yaml", "--config", "same.yaml") as process:
        rows = read_table(process)
        running.find("little")
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE)
    assert {name: row["address"] for name, row in rows.items() if name != "gymweb"} == {
        "little": f"http://127.0.0.1:{port}"
    }
    (running.folder / "same.yaml").write_text("little: {resources_servers: {other: {entrypoint: app.py}}}\n")
    said = running.refused("--config", "little.yaml", "--config", "same.yaml")
    assert "little.resources_servers: must hold one implementation" in said


def test_without_a_configuration_the_built_in_environments_start(running: Running) -> None:
    with running.begin() as process:
        rows = read_table(process)
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE)
    assert {"calculator", "exact_match", "blackjack", "workplace"} <= rows.keys()
    # It needs a judge model.
    assert "judged" not in rows


OWN = """
import http.server, os, re, sys
port = int(re.search(r"port: (\\d+)\\n", os.environ["NEMO_GYM_CONFIG_DICT"].partition("alone:")[2])[1])

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.prefix.encode())

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_a_server_with_requirements_runs_in_its_own_virtual_environment(running: Running) -> None:
    running.write("alone", {"resources_servers": {"alone": {"entrypoint": "app.py"}}})
    folder = running.folder / "resources_servers" / "alone"
    folder.mkdir()
    (folder / "app.py").write_text(OWN)

    def prefix_and_messages() -> tuple[str, str]:
        with running.begin("--config", "alone.yaml") as process:
            with urlopen(read_table(process)["alone"]["address"]) as reply:
                prefix = reply.read().decode()
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE)
            assert process.stderr
            return prefix, process.stderr.read()

    (folder / "requirements.txt").write_text("# none\n")
    prefix, said = prefix_and_messages()
    assert prefix == str(folder / ".venv")
    assert said.count("Installing alone: ") == 2
    assert "Installing" not in prefix_and_messages()[1]
    (folder / "requirements.txt").write_text("./missing\n")
    said = running.refused("--config", "alone.yaml")
    assert "alone cannot be installed" in said
    assert "missing" in said.partition("ends:")[2]
