"""Requests generated from docs/openapi.yaml against a real server: nothing breaks, and nothing is answered that the
schema does not have. `make fuzz` does more of it, with other seeds."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deadlines import DEADLINE
from tests.gymweb.serving import ROOT
from tests.migrated import lay_out
from tests.openapi import DOCUMENT

SCHEMA = ROOT / "docs" / "openapi.yaml"
SEED = os.environ.get("FUZZ_SEED", "20261121")
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "8"))
# Boundary values one by one: some 6,000 requests more.
PHASES = os.environ.get("FUZZ_PHASES", "examples,fuzzing")
CHECKS = [
    "not_a_server_error",
    "status_is_named",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "ignored_auth",
]
METHODS = {"get", "put", "post", "delete", "patch"}
OPERATIONS = sum(len(METHODS & set(path)) for path in DOCUMENT["paths"].values())
LIMIT = 1_800
# What no key may do: always 403 here, and tested with sessions elsewhere.
IN_SESSIONS_ONLY = {
    f"{method.upper()} {path}"
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if not operation["x-scopes"]
}
OF_A_WORKING_AGENT = {f"POST {path}" for path in DOCUMENT["paths"] if path.startswith("/api/v1/attempts/")}
"""These take effect only while a worker runs a collection of an external agent: tests/capture."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, dict[str, str], Path]]:
    """The address of a server without a worker, what its client needs to know of it, and its log."""
    given = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "gymweb.settings",
        "GYMWEB_VAR": str(tmp_path),
        "GYMWEB_DATABASE_URL": f"sqlite:///{tmp_path}/gymweb.sqlite3",
        "GYMWEB_REDIS_URL": "",
        "GYMWEB_OUTBOUND_ALLOW": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
    python = [sys.executable]
    lay_out(tmp_path / "gymweb.sqlite3")
    filled = subprocess.run(
        [*python, "-m", "tests.fuzz.rows"], cwd=ROOT, env=given, check=True, text=True, stdout=subprocess.PIPE
    )
    known = json.loads(filled.stdout.splitlines()[-1])
    log = tmp_path / "server.log"
    with log.open("w") as file:
        serve = [*python, "-m", "tests.fuzz.served", "serve", "--no-worker", "--port", "0"]
        server = subprocess.Popen(serve, cwd=ROOT, env=given, stdout=file, stderr=subprocess.STDOUT)
        try:
            yield _address(server, log), {"key": known["key"], "known": json.dumps(known["known"])}, log
            assert server.poll() is None, "the server ended"
        finally:
            server.terminate()
            server.wait(DEADLINE)


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(1_200):
        if found := re.search(r"GymWeb is at (http://127.0.0.1:\d+)/", log.read_text()):
            return found[1]
        try:
            server.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(log.read_text())


def _answers(report: Path) -> dict[str, Counter[int]]:
    """Statuses by operation."""
    answers: dict[str, Counter[int]] = defaultdict(Counter)
    with report.open() as lines:
        for line in lines:
            recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
            for one in recorder.get("interactions", {}).values():
                answers[recorder["label"]][one["response"]["status_code"]] += 1
    return answers


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.slow
def test_no_generated_request_breaks_anything_or_is_answered_otherwise_than_documented(site, tmp_path):
    address, known, log = site
    report = tmp_path / "report.ndjson"
    began = time.monotonic()
    ran = subprocess.run(
        [
            Path(sys.executable).with_name("st"),
            *("--config-file", ROOT / "tests" / "fuzz" / "schemathesis.toml"),
            *("run", SCHEMA, "--url", address, "--header", f"Authorization: Bearer {known['key']}"),
            *("--phases", PHASES, "--max-examples", str(EXAMPLES), "--seed", SEED, "--checks", ",".join(CHECKS)),
            *("--suppress-health-check", "all", "--no-shrink", "--continue-on-failure", "--warnings", "off"),
            *("--report", "ndjson", "--report-ndjson-path", report, "--request-timeout", "120"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks",
            "FUZZ_KNOWN": known["known"],
        },
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT,
        check=False,
    )
    broken = [line for line in log.read_text().splitlines() if " ERROR " in line or "Traceback" in line]
    assert ran.returncode == 0, f"{ran.stdout}\n" + "\n".join(broken)
    assert broken == []
    answers = _answers(report)
    assert len(answers) == OPERATIONS
    # A walk that is refused everywhere would find nothing: but for a few, operations have done what they are there for.
    refused = {label for label, statuses in answers.items() if min(statuses) >= 300}
    refused -= IN_SESSIONS_ONLY | OF_A_WORKING_AGENT
    assert len(refused) <= OPERATIONS // 25, "\n".join(sorted(refused))
    requests = sum(statuses.total() for statuses in answers.values())
    least = min(statuses.total() for statuses in answers.values())
    seconds = time.monotonic() - began
    print(f"fuzz: {requests} requests, {OPERATIONS} operations, at least {least} each, seed {SEED}, {seconds:.0f} s")
