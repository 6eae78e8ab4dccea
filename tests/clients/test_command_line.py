"""`gymweb` as a program against a real server, and from file to file without one."""

import json
import os
import re
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.command_line import CommandLine
from tests.clients.site import Site, open_site
from tests.deadlines import DEADLINE, wait_until
from tests.factories import make_row
from tests.gymweb.serving import ROOT

pytestmark = pytest.mark.slow
TASKS = "".join(
    json.dumps(make_row(f"What is {number} + 2?", str(number + 2), id=f"sum-{number}")) + "\n" for number in range(4)
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A fresh one: the README's commands name collection 1."""
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


def test_the_walk_of_the_readme_runs_as_a_script_that_stops_at_errors(signed_in: CommandLine) -> None:
    signed_in.gymweb("models", "create", "qwen", "--name", "Qwen", "--provider", "scripted", "--mistake-rate", "0.5")
    (walk,) = re.findall(r"```sh\n(gymweb upload.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    out, err = signed_in.run("bash", "-c", f"set -e\n{walk}")
    assert "sums version 1: 4 tasks, ready." in err
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


def test_each_way_to_fail_has_its_exit_code(site: Site, shell: CommandLine) -> None:
    known = {"GYMWEB_URL": site.base, "GYMWEB_TOKEN": site.key}
    assert "gymweb login" in shell.gymweb("datasets", code=3)[1]
    assert "GYMWEB_TOKEN" in shell.gymweb("datasets", code=3, GYMWEB_URL=site.base, GYMWEB_TOKEN="gw_no_key")[1]
    viewer = {**known, "GYMWEB_TOKEN": site.viewer_key}
    shell.gymweb("agents", "create", "mine", "--name", "Mine", code=3, **viewer)
    assert "nothing at this address" in shell.gymweb("collections", "show", "99999", code=4, **known)[1]
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
        "No API key for http://127.0.0.1:9 is known" in shell.gymweb("whoami", "--url", "http://127.0.0.1:9", code=3)[1]
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
        while "model fails, its rollouts wait" not in said:
            assert select.select([process.stderr], [], [], DEADLINE)[0], said
            block = os.read(process.stderr.fileno(), 65536).decode()
            assert block, f"it ended: {said}"
            said += block
        temporary = shell.folder / "tmp"
        (log,) = temporary.glob("gymweb-*/serve.log")
        servers = [path for path in Path("/proc").glob("[0-9]*/environ") if str(log.parent).encode() in _read(path)]
        process.send_signal(signal.SIGINT)
        _, last = process.communicate(timeout=DEADLINE)
    assert (process.returncode, last) == (130, "Interrupted.\n")
    assert list(temporary.iterdir()) == []
    assert servers
    wait_until(lambda: not any(path.exists() for path in servers), what="its processes have ended")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
