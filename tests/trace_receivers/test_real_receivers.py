"""Real Phoenix and MLflow servers store what GymWeb sends, from the environments of `make trace-receivers`.

Without its environment, a test is skipped by name.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import TraceDestination
from apps.exports.trace_sends.destination_changes import save_destination
from apps.exports.trace_sends.send_jobs import send_queued_traces
from apps.exports.trace_sends.send_orders import TraceSendOrder, queue_trace_send
from scripts.build_environment import environment_folder, is_complete
from tests.alerts.receiver import find_port
from tests.deadlines import wait_until
from tests.factories import make_collection, make_rollout
from tests.gym.exporters.test_otel_genai import subagent_events, weather

PHOENIX, MLFLOW = environment_folder("phoenix"), environment_folder("mlflow")
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"{}")


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def running(folder: Path, program: Path, *given: str, health: str, **environment: str) -> Iterator[None]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), *given],
            cwd=folder,
            env={**os.environ, "HOME": str(folder), "PYTHONPATH": "", **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_until(lambda: process.poll() is not None or is_up(health), seconds=600, what="the receiver")
            assert process.poll() is None, (folder / "server.log").read_text()[-2_000:]
            yield
        finally:
            # The server starts further processes.
            os.killpg(process.pid, 15)
            process.wait(60)


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[str]:
    port = str(find_port())
    given = {
        "PHOENIX_WORKING_DIR": str(tmp_path),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": port,
        "PHOENIX_GRPC_PORT": str(find_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    with running(tmp_path, PHOENIX / "bin" / "phoenix", "serve", health=f"http://127.0.0.1:{port}/healthz", **given):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def mlflow(tmp_path: Path) -> Iterator[str]:
    port = str(find_port())
    given = ["--host", "127.0.0.1", "--port", port, "--workers", "1"]
    given += ["--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"]
    program = MLFLOW / "bin" / "mlflow"
    with running(tmp_path, program, "server", *given, health=f"http://127.0.0.1:{port}/health", DO_NOT_TRACK="true"):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def send(settings, tmp_path: Path):
    """Send an export of a linear rollout and of one with subagents, as often as it is called."""
    settings.OUTBOUND_ALLOW, settings.EXPORTS_DIR = ["127.0.0.1"], tmp_path / "exports"
    settings.EXPORTS_DIR.mkdir()
    collection = make_collection()
    rollouts = [
        make_rollout(collection, repeat=number, reward=0.5, trace=events)
        for number, events in enumerate((weather(), subagent_events()))
    ]
    export = write_export(export=queue_export(ExportOrder(format="otel_genai", collection=collection)))

    def work(url: str, **headers: str) -> list[int]:
        destination = TraceDestination(name=f"receiver {TraceDestination.objects.count()}")
        save_destination(destination=destination, url=f"{url}/v1/traces", headers=headers)
        sent = queue_trace_send(TraceSendOrder(export=export, destination=destination))
        assert send_queued_traces()
        sent.refresh_from_db()
        assert (sent.state, sent.sent, sent.rejected_spans, sent.message) == ("sent", 2, 0, "")
        return [rollout.pk for rollout in rollouts]

    return work


@pytest.mark.skipif(not is_complete(PHOENIX), reason="SKIPPED by name: Phoenix: make trace-receivers")
def test_phoenix_shows_model_calls_tools_and_agents(phoenix, send):
    def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = ask(f"{phoenix}/v1/projects/default/spans?limit=100")["data"]
        return found

    send(phoenix)
    wait_until(lambda: len(read()) == 17, seconds=120, what=lambda: f"{len(read())} spans")
    send(phoenix)
    spans = read()
    assert len(spans) == 17, "sending again adds no span"
    kinds = sorted(span["span_kind"] for span in spans)
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"AGENT": 4, "LLM": 8, "TOOL": 3, "EVALUATOR": 2}
    ids = {span["context"]["span_id"] for span in spans}
    assert sum(span["parent_id"] is None for span in spans) == 2
    assert {span["parent_id"] for span in spans if span["parent_id"]} <= ids
    [call] = [span["attributes"] for span in spans if span["attributes"].get("llm.token_count.prompt") == 30]
    assert call["llm.model_name"].startswith("policy-1")
    assert call["llm.token_count.completion"] == 4
    assert "How warm" in call["llm.input_messages.0.message.content"]
    roots = [span for span in spans if span["parent_id"] is None]
    assert {event["name"] for root in roots for event in root["events"]} == {"gen_ai.evaluation.result"}


@pytest.mark.skipif(not is_complete(MLFLOW), reason="SKIPPED by name: MLflow: make trace-receivers")
def test_mlflow_shows_traces_with_usage(mlflow, send):
    def read() -> list[dict[str, Any]]:
        where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}
        asked = {"locations": [where], "max_results": 100}
        found: list[dict[str, Any]] = ask(f"{mlflow}/api/3.0/mlflow/traces/search", asked).get("traces", [])
        return found

    rollouts = send(mlflow, **{"x-mlflow-experiment-id": "0"})
    wait_until(lambda: len(read()) == 2, seconds=120, what="two traces")
    send(mlflow, **{"x-mlflow-experiment-id": "0"})
    traces = read()
    assert len(traces) == 2, "sending again adds no trace"
    sessions = {trace["trace_metadata"]["mlflow.trace.session"] for trace in traces}
    assert sessions == {f"rollout-{pk}" for pk in rollouts}
    usage = [trace["trace_metadata"].get("mlflow.trace.tokenUsage") for trace in traces]
    assert [json.loads(one)["input_tokens"] for one in usage if one] == [30]
    assert "How warm is it in Paris?" in " ".join(trace["request_preview"] for trace in traces)
