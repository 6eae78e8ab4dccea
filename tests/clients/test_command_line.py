"""`gymweb` as a program against a real server, and from file to file without one."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.clients.command_line import CommandLine
from tests.clients.site import Site, open_site
from tests.deadlines import DEADLINE, wait_until
from tests.factories import make_row
from tests.gym.gymconfig.test_describing import ENV, LAB
from tests.gymweb.serving import ROOT

pytestmark = pytest.mark.slow
TASKS = "".join(
    json.dumps(make_row(f"What is {number} + 2?", str(number + 2), id=f"sum-{number}")) + "\n" for number in range(4)
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A fresh one: the documented commands name collection 1."""
    with open_site(tmp_path_factory.mktemp("site"), "--seats", "16") as opened:
        yield opened


@pytest.fixture
def shell(site: Site, tmp_path: Path) -> CommandLine:
    """Not signed in."""
    line = CommandLine(tmp_path, [site.key, site.viewer_key])
    (tmp_path / "sums.jsonl").write_text(TASKS)
    return line


@pytest.fixture
def signed_in(site: Site, shell: CommandLine) -> CommandLine:
    shell.gymweb("login", "--url", site.base, stdin=f"{site.key}\n")
    return shell


def test_the_documented_commands_run_as_a_script_that_stops_at_errors(signed_in: CommandLine) -> None:
    signed_in.gymweb("models", "create", "qwen", "--name", "Qwen", "--provider", "scripted", "--mistake-rate", "0.5")
    (walk,) = re.findall(r"```sh\n(gymweb upload.*?)```", (ROOT / "docs" / "use" / "cli.md").read_text(), re.DOTALL)
    out, err = signed_in.run("bash", "-c", f"set -e\n{walk}")
    assert "sums version 1: 4 tasks" in err
    assert re.search(r"^completed +32$", out, re.MULTILINE)
    assert "── 1 prompt\n" in out
    pairs = [json.loads(row) for row in (signed_in.folder / "pairs.jsonl").read_text().splitlines()]
    assert pairs
    assert all({"prompt", "chosen", "rejected"} <= set(pair) for pair in pairs)
    rows, _ = signed_in.gymweb("rollouts", "--collection", "1", "--json")
    assert len([json.loads(row) for row in rows.splitlines()]) == 32
    table, said = signed_in.gymweb("rollouts", "--collection", "1", "--limit", "3")
    assert (len(table.splitlines()), said) == (4, "")


def test_a_script_stops_where_an_operation_fails(signed_in: CommandLine) -> None:
    (signed_in.folder / "bad.jsonl").write_text('{"question": 1}\n')
    script = "set -e; gymweb upload bad.jsonl --dataset bad --environment exact_match; echo goes on"
    out, err = signed_in.run("bash", "-c", script, code=1)
    assert out == ""
    assert "line 1: /responses_create_params is missing" in err


def test_people_review_from_the_command_line(signed_in: CommandLine) -> None:
    signed_in.gymweb("models", "create", "guess", "--name", "G", "--provider", "scripted", "--mistake-rate", "0.5")
    planned, _ = signed_in.gymweb(
        *("collect", "sums.jsonl", "--dataset", "judged", "--environment", "exact_match", "--model", "guess"),
        *("-k", "8", "--no-wait", "--json"),
    )
    collection = str(json.loads(planned)["id"])
    signed_in.gymweb("watch", collection)
    queue, _ = signed_in.gymweb("queues", "create", "Which", "--kind", "pairwise", "--collection", collection, "--json")
    number = str(json.loads(queue)["id"])
    shown, _ = signed_in.gymweb("review", "next", number)
    assert shown.count("═══") == 2
    review, _ = signed_in.gymweb("review", "next", number, "--json")
    submitted = ("review", "submit", str(json.loads(review)["id"]), "--choice", "a", "--token", "once")
    signed_in.gymweb(*submitted, "--reason", "correctness", "--confidence", "3")
    exported, _ = signed_in.gymweb("queues", "export", number)
    assert [json.loads(line)["choice"] for line in exported.splitlines()] == ["a"]
    built, _ = signed_in.gymweb("pairs", "build", collection, "--margin", "0.5", "--json")
    made = json.loads(built)
    assert made["sources"]["verdict"] == 1
    chosen = ("pairs", "decide", "rejected", "--pair-set", str(made["id"]), "--below-margin", "2", "--reason", "close")
    decided, _ = signed_in.gymweb(*chosen, "--json")
    # The pair that a person chose has no margin.
    assert json.loads(decided) == {"found": made["pair_count"] - 1, "changed": made["pair_count"] - 1}


def test_rollouts_go_out_and_come_back_with_the_same_rewards(signed_in: CommandLine) -> None:
    signed_in.gymweb("models", "create", "sure", "--name", "Sure", "--provider", "scripted")
    plan = ("--environment", "exact_match", "--model", "sure", "-k", "2", "-o", "rollouts.jsonl.gz", "--json")
    collected, _ = signed_in.gymweb("collect", "sums.jsonl", "--dataset", "there", *plan)
    back = ("--dataset", "back", "--environment", "exact_match", "--json")
    imported, _ = signed_in.gymweb("import", "rollouts", "rollouts.jsonl.gz", *back)
    report = json.loads(imported)
    assert (report["total"], report["mean_reward"]) == (8, json.loads(collected)["mean_reward"])
    again, said = signed_in.gymweb("reverify", str(report["id"]), "--json")
    assert (json.loads(again)["verified"], json.loads(again)["changed"], said) == (8, 0, "")
    [checked] = rows(signed_in, "recheck", str(report["id"]), "--apply")
    assert (checked["state"], checked["checked"], checked["outcomes"], checked["exports"]) == ("applied", 8, 0, [])


def test_a_template_is_checked_from_a_file(signed_in: CommandLine) -> None:
    signed_in.gymweb("models", "create", "certain", "--name", "Certain", "--provider", "scripted")
    plan = ("--environment", "exact_match", "--model", "certain", "-k", "1", "-o", "checked.jsonl", "--json")
    collected, _ = signed_in.gymweb("collect", "sums.jsonl", "--dataset", "checked", *plan)
    collection = str(json.loads(collected)["id"])
    everything = ("--format", "trl_sft", "--filter", "min_reward=-1", "-o", "checked")
    export = answer(signed_in, "export", collection, *everything)
    template = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    (signed_in.folder / "own.jinja").write_text(template)
    found = answer(signed_in, "exports", "check-template", str(export["id"]), "--template", "@own.jinja", "--every-row")
    assert found["rows"] == found["rendered"] == export["rows"] > 0
    lost = {one["kind"]: one["rows"] for one in found["findings"]}
    assert lost == {"text_lost": export["rows"], "reasoning_lost": export["rows"]}
    _, said = signed_in.gymweb("exports", "check-template", str(export["id"]), "--tokenizer", "/etc", code=2)
    assert "GYMWEB_TOKENIZERS" in said


def answer(shell: CommandLine, *words: str) -> Any:
    """The one JSON object that the command prints."""
    return json.loads(shell.gymweb(*words, "--json")[0])


def rows(shell: CommandLine, *words: str) -> list[Any]:
    return [json.loads(line) for line in shell.gymweb(*words, "--json")[0].splitlines()]


def test_a_collection_is_steered(signed_in: CommandLine) -> None:
    # Its rollouts wait, so that the collection does not end by itself.
    unreachable = ("--base-url", "http://127.0.0.1:9/v1", "--model-name", "none")
    signed_in.gymweb("models", "create", "down", "--name", "Down", "--provider", "compatible", *unreachable)
    plan = ("--dataset", "steered", "--environment", "exact_match", "--model", "down", "-k", "100")
    number = str(answer(signed_in, "collect", "sums.jsonl", *plan, "--concurrency", "1", "--no-wait")["id"])
    assert answer(signed_in, "collections", "pause", number)["state"] == "paused"
    adjusted = answer(signed_in, "collections", "adjust", number, "--priority", "-3", "--max-seconds", "none")
    assert (adjusted["priority"], adjusted["max_seconds"]) == (-3, None)
    assert answer(signed_in, "collections", "resume", number)["state"] == "running"
    assert answer(signed_in, "collections", "cancel", number)["state"] == "cancelled"
    assert answer(signed_in, "collections", "archive", number)["is_archived"] is True
    assert answer(signed_in, "collections", "restore", number)["is_archived"] is False
    deletion = answer(signed_in, "collections", "delete", number)["id"]
    signed_in.gymweb("collections", "show", number, code=4)
    assert deletion in [row["id"] for row in rows(signed_in, "collections", "deletions")]


def test_leads_settle_reviews_and_decide_pairs(signed_in: CommandLine) -> None:
    signed_in.gymweb("models", "create", "half", "--name", "H", "--provider", "scripted", "--mistake-rate", "0.5")
    plan = ("--dataset", "led", "--environment", "exact_match", "--model", "half", "-k", "8")
    number = str(answer(signed_in, "collect", "sums.jsonl", *plan)["id"])
    rollout = str(rows(signed_in, "rollouts", "--collection", number)[0]["id"])
    criteria = '{"key": "right", "label": "Right", "kind": "boolean"}'
    signed_in.gymweb("rubrics", "create", "clarity", "--name", "Clarity", "--criteria", criteria)
    signed_in.gymweb("review", "score", rollout, "clarity", "--score", "right=true")
    signed_in.gymweb("flags", "add", rollout, "wrong_tool", "--note", "It guessed.")
    signed_in.gymweb("comments", "add", rollout, "Why?")
    signed_in.gymweb("rewards", "override", rollout, "0.5", "--reason", "Half of it.")
    told = [rows(signed_in, noun, "--collection", number)[0] for noun in ("flags", "comments", "rewards")]
    assert [each["rollout"] for each in told] == [int(rollout)] * 3
    assert rows(signed_in, "review", "--collection", number)[0]["scores"] == {"right": True}

    first = answer(signed_in, "pairs", "build", number, "--name", "led")
    second = answer(signed_in, "pairs", "build", number, "--name", "led", "--margin", "0.5")
    changes = answer(signed_in, "pairs", "changes", str(second["id"]))
    assert changes["settings"] == {"margin": [0.1, 0.5]}
    assert [row["id"] for row in rows(signed_in, "pairs", "sets", "--name", "led")] == [second["id"], first["id"]]
    queue = str(answer(signed_in, "pairs", "ask", str(second["id"]), "--limit", "1")["id"])
    assert [row["id"] for row in rows(signed_in, "queues", "--is-open") if str(row["id"]) == queue]
    (item,) = rows(signed_in, "queues", "items", "--queue", queue)
    review = str(answer(signed_in, "review", "next", queue)["id"])
    signed_in.gymweb("review", "submit", review, "--choice", "equal", "--token", "once")
    signed_in.gymweb("queues", "adjudicate", str(item["id"]), "--choice", "b_much", "--token", "once")
    assert answer(signed_in, "queues", "figures", queue)["progress"]["adjudicated"] == 1
    (verdict,) = answer(signed_in, "pairs", "verdicts", "--collection", number)
    assert (verdict["winner"], verdict["how"]) == (item["rollouts"][1], "adjudicated")
    assert answer(signed_in, "queues", "close", queue)["is_open"] is False
    signed_in.gymweb("pairs", "delete", str(first["id"]))
    assert [row["id"] for row in rows(signed_in, "pairs", "sets", "--name", "led")] == [second["id"]]


def test_a_worker_is_drained(site: Site, signed_in: CommandLine) -> None:
    def found(pid: int) -> list[Any]:
        return [row for row in rows(signed_in, "workers") if row["pid"] == pid]

    words = [sys.executable, "manage.py", "rolloutworker"]
    with subprocess.Popen(words, cwd=ROOT, env=site.environment) as worker:
        try:
            wait_until(lambda: bool(found(worker.pid)), what="the worker is listed")
            assert answer(signed_in, "workers", "drain", str(found(worker.pid)[0]["id"]))["state"] == "draining"
            assert worker.wait(DEADLINE) == 0
        finally:
            worker.kill()


def test_patterns_of_secrets_are_added_tried_and_deleted(signed_in: CommandLine) -> None:
    added = answer(signed_in, "redaction", "add", "prefix", "corp.", "--least", "6")
    assert [(row["text"], row["least"]) for row in rows(signed_in, "redaction")] == [("corp.", 6)]
    tried = answer(signed_in, "redaction", "try", "badge corp.abc123")
    assert (tried["clean"], tried["counts"]) == ("badge [REDACTED:pattern]", {"pattern": 1})
    signed_in.gymweb("redaction", "delete", str(added["id"]))
    assert rows(signed_in, "redaction") == []


def test_a_configuration_is_imported_with_the_addresses_of_a_head_server(signed_in: CommandLine) -> None:
    (signed_in.folder / "lab.yaml").write_text(LAB.replace(", host: 0.0.0.0, port: 8123", ""))
    (signed_in.folder / "env.yaml").write_text(ENV)
    servers = [{"config_path": "lab", "name": "lab_1", "url": "http://127.0.0.1:8777"}]
    (signed_in.folder / "server_instances").write_text(json.dumps(servers))
    words = ("import", "config", "lab.yaml", "env.yaml", "--without-data")
    steps = "lab_simple_agent.responses_api_agents.simple_agent.max_steps=3"
    assert "lab=URL" in signed_in.gymweb(*words, code=2)[1]
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=signed_in.folder)) as head:
        threading.Thread(target=head.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{head.server_port}"
        signed_in.gymweb(*words, "--head", url, "--set", steps)
        assert "not the head server" in signed_in.gymweb(*words, "--head", f"{url}/lab.yaml?", code=1)[1]
        head.shutdown()
    assert answer(signed_in, "environments", "show", "lab")["base_url"] == "http://127.0.0.1:8777"
    assert answer(signed_in, "agents", "show", "lab_simple_agent")["max_steps"] == 3


def test_each_way_to_fail_has_its_exit_code(site: Site, shell: CommandLine) -> None:
    known = {"GYMWEB_URL": site.base, "GYMWEB_TOKEN": site.key}
    assert "gymweb login" in shell.gymweb("datasets", code=3)[1]
    assert "GYMWEB_KEY" in shell.gymweb("datasets", code=3, GYMWEB_URL=site.base, GYMWEB_TOKEN="gw_no_key")[1]
    viewer = {**known, "GYMWEB_TOKEN": site.viewer_key}
    shell.gymweb("agents", "create", "mine", "--name", "Mine", code=3, **viewer)
    assert "Not found" in shell.gymweb("collections", "show", "99999", code=4, **known)[1]
    assert "--repeats" in shell.gymweb("collect", "--dataset", "sums", "--model", "x", "-k", "0", code=2, **known)[1]
    assert "--model: " in shell.gymweb("collect", "--dataset", "x", "--model", "x", code=2, **known)[1].replace(
        "policy-", ""
    )
    assert "No such option" in shell.gymweb("datasets", "--colour", code=2, **known)[1]
    assert (
        "missing.jsonl: No such file" in shell.gymweb("upload", "missing.jsonl", "--dataset", "x", code=2, **known)[1]
    )
    assert "Cannot connect" in shell.gymweb("datasets", "--url", "http://127.0.0.1:9", code=5, GYMWEB_TOKEN="gw_a_b")[1]


def test_profiles_are_checked_private_and_sent_to_their_own_server_only(site: Site, shell: CommandLine) -> None:
    shell.gymweb("login", "--url", site.base, stdin="gw_wrong_key\n", code=3)
    path = shell.folder / "config" / "gymweb" / "config.toml"
    assert not path.exists()
    out, err = shell.gymweb("login", "--url", f"{site.base}/api/v1/", stdin=f"{site.key}\n")
    assert (out, path.stat().st_mode & 0o777) == ("", 0o600)
    assert f"Signed in to {site.base} as engineer" in err
    shell.gymweb("login", "--url", site.base, "--profile", "reader", GYMWEB_TOKEN=site.viewer_key)
    who = [shell.gymweb("whoami", "--json", *more)[0] for more in ((), ("--profile", "reader"), ("--url", site.base))]
    assert [json.loads(one)["username"] for one in who] == ["engineer", "viewer", "engineer"]
    assert (
        "No API key for http://127.0.0.1:9 is stored"
        in shell.gymweb("whoami", "--url", "http://127.0.0.1:9", code=3)[1]
    )
    shell.gymweb("profiles", "--default", "reader")
    assert json.loads(shell.gymweb("whoami", "--json")[0])["username"] == "viewer"
    shell.gymweb("logout", "--profile", "reader")
    assert site.viewer_key not in path.read_text()
    assert [json.loads(one)["profile"] for one in shell.gymweb("profiles", "--json")[0].splitlines()] == ["default"]


def test_from_file_to_file_without_a_server(shell: CommandLine) -> None:
    plan = ("--environment", "exact_match", "--model", "scripted", "-k", "2", "-o", "rollouts.jsonl", "--json")
    out, _ = shell.gymweb("collect", "sums.jsonl", *plan)
    assert (json.loads(out)["state"], json.loads(out)["completed"]) == ("completed", 8)
    rows = [json.loads(line) for line in (shell.folder / "rollouts.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    assert all({"responses_create_params", "response", "reward", "_ng_task_index"} <= set(row) for row in rows)
    assert list((shell.folder / "tmp").iterdir()) == []
    assert "--output" in shell.gymweb("collect", "sums.jsonl", "--model", "scripted", code=2)[1]


def test_a_temporary_server_says_what_it_waits_for_and_is_removed_at_an_interrupt(shell: CommandLine) -> None:
    unreachable = ("--model-url", "http://127.0.0.1:9/v1", "--model-name", "none", "-k", "100")
    plan = ("--environment", "exact_match", *unreachable, "-o", "rollouts.jsonl")
    with shell.start("gymweb", "collect", "sums.jsonl", *plan) as process:
        assert process.stderr
        said = ""
        while "Rollouts wait: policy model model" not in said:
            assert select.select([process.stderr], [], [], DEADLINE)[0], said
            block = os.read(process.stderr.fileno(), 65536).decode()
            assert block, f"it ended: {said}"
            said += block
        temporary = shell.folder / "tmp"
        (log,) = temporary.glob("gymweb-*/serve.log")
        servers = [path for path in Path("/proc").glob("[0-9]*/environ") if str(log.parent).encode() in _read(path)]
        process.send_signal(signal.SIGINT)
        _, last = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert last.endswith("Interrupted.\n")  # before it, the line again if the signal came while it was printed
    assert list(temporary.iterdir()) == []
    assert servers
    wait_until(lambda: not any(path.exists() for path in servers), what="its processes have ended")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_gate_has_exit_codes_and_a_report(signed_in: CommandLine) -> None:
    signed_in.gymweb("models", "create", "good", "--name", "Good", "--provider", "scripted")
    signed_in.gymweb("models", "create", "bad", "--name", "Bad", "--provider", "scripted", "--mistake-rate", "1")
    (signed_in.folder / "more.jsonl").write_text(
        "".join(json.dumps(make_row(f"What is {n} + 2?", str(n + 2))) + "\n" for n in range(8))
    )
    signed_in.gymweb("upload", "more.jsonl", "--dataset", "gated", "--environment", "exact_match")
    made = [
        json.loads(signed_in.gymweb("collect", "--dataset", "gated", "--model", model, "--json")[0])["id"]
        for model in ("good", "bad")
    ]
    good, bad = map(str, made)
    reports = {}
    for code, baseline, candidate in ((0, good, good), (0, bad, good), (1, good, bad), (2, good, "999999")):
        words = ["gate", "--baseline", baseline, "--candidate", candidate, "--max-drop", "0.02", "--junit", "gate.xml"]
        signed_in.gymweb(*words, code=code)
        suite = ElementTree.parse(signed_in.folder / "gate.xml").getroot()
        reports[code] = (suite.get("tests"), suite.get("failures"), suite.get("errors"))
    assert reports == {0: ("1", "0", "0"), 1: ("1", "1", "0"), 2: ("1", "0", "1")}


def test_a_reader_that_has_enough_ends_the_command_without_a_message(signed_in: CommandLine) -> None:
    with signed_in.start("gymweb", "environments", "--json") as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(DEADLINE), said) == (1, "")
