"""Command agents: the worker runs a program in a sandbox for each rollout, and captures its model calls."""

import asyncio
import json
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gymweb_client import ApiError, AsyncGymWeb

from tests.capture import agent_scripts
from tests.capture.test_external_agents import ended, plan
from tests.clients.site import Site, open_site
from tests.gym.sandbox.needing import needs_sandbox

pytestmark = [pytest.mark.slow, needs_sandbox]
VARIABLES = {"AGENT_URL": "{openai_base_url}", "AGENT_KEY": "{api_key}"}


def script(text: str, *arguments: str, **settings: Any) -> dict[str, Any]:
    """The fields of a command agent that runs a program."""
    command = ["python3", "-c", text, *arguments]
    return {"kind": "command", "command_settings": {"command": command, "variables": VARIABLES, **settings}}


async def rollouts(gym: AsyncGymWeb, collection: int) -> list[Any]:
    return list((await gym.request("GET", f"rollouts/?collection={collection}"))["results"])


async def run_one(gym: AsyncGymWeb, site: Site, agent: dict[str, Any], **fields: Any) -> Any:
    """The ended rollout of a collection with one task."""
    collection = await plan(gym, site, agent=agent, max_attempts=1, **fields)
    return await ended(gym, (await rollouts(gym, collection))[0]["id"])


async def trace(gym: AsyncGymWeb, rollout: int) -> list[Any]:
    return list((await gym.request("GET", f"rollouts/{rollout}/trace/"))["events"])


def processes(mark: str) -> list[int]:
    """The processes that have the mark among their arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "cmdline").read_bytes().decode(errors="replace").split("\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def box_folders(site: Site, mark: str) -> set[Path]:
    """The working folders of the processes that have the mark."""
    place = Path(site.environment["GYMWEB_VAR"], "tmp") if os.geteuid() else Path("/tmp")
    found = set()
    for folder in place.glob("gymweb-boxes-*/*/work"):
        for process in processes(mark):
            with suppress(OSError):
                if folder.samefile(f"/proc/{process}/root/work"):
                    found.add(folder)
    return found


def new_mark() -> str:
    """A number that no other process has among its arguments."""
    return str(uuid.uuid4().int % 10**9 + 10**9)


async def until(check: Any) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_command_reads_its_task_calls_the_model_and_writes_an_answer(site: Site) -> None:
    settings = {"answer_file": "answer.txt", "artifacts": ["notes.txt", "passwd.txt", "nothing.txt"]}
    async with AsyncGymWeb(site.base, site.key) as gym:
        row = await run_one(gym, site, script(agent_scripts.SOLVE, "{instruction_file}", **settings))
        assert (row["status"], row["reward"], row["turns"]) == ("completed", 1.0, 1), row["error_message"]
        events = await trace(gym, row["id"])
        assert [event["kind"] for event in events] == [
            "session",
            "prompt",
            "model_call",
            "agent_end",
            "verification",
        ]
        end = events[3]["event"]
        # The link is not followed, and the key of the attempt is not stored.
        assert end["artifacts"] == {"notes.txt": "asked: What is 2 + 2? with (key)"}
        assert "4" in end["answer"]


async def test_the_output_is_the_answer_without_an_answer_file(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        row = await run_one(gym, site, script("print('{instruction}', {max_turns}, '{workdir}')"))
        end = (await trace(gym, row["id"]))[-2]["event"]
        assert end["answer"] == "What is 2 + 2? 10 /work"
        assert (row["status"], row["reward"]) == ("completed", 0.0)


async def test_a_command_without_its_answer_file_fails(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        for text in ("print('4')", "open('answer.txt', 'w').close()"):
            row = await run_one(gym, site, script(text, answer_file="answer.txt"))
            assert (row["status"], row["error_kind"], row["reward"]) == ("failed", "agent_error", None)
            assert "answer.txt" in row["error_message"]


async def test_a_command_reaches_neither_the_network_nor_files_of_the_installation(site: Site) -> None:
    var = Path(site.environment["GYMWEB_VAR"])
    secret = var / "secret.txt"
    secret.write_text("of the operator")
    paths = [str(var / "gymweb.sqlite3"), str(secret), str(Path(__file__)), "/etc/shadow", "/proc/1/environ"]
    given = [json.dumps(paths), "127.0.0.1", str(site.served.port)]
    async with AsyncGymWeb(site.base, site.key) as gym:
        row = await run_one(gym, site, script(agent_scripts.LOOK, *given))
        found = json.loads((await trace(gym, row["id"]))[-2]["event"]["answer"])
    assert found.pop("environment") == ["AGENT_KEY", "AGENT_URL", "HOME", "LANG", "PATH", "PWD", "USER"]
    assert found.pop("network") == "ConnectionRefusedError"
    # Process 1 of the box is bubblewrap.
    assert found.pop("/proc/1/environ").strip("'").startswith("PATH=/usr/bin:/bin")
    assert set(found.values()) == {"FileNotFoundError"}


async def test_a_command_that_fails_fails_its_rollout_with_its_last_words(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        row = await run_one(gym, site, script(agent_scripts.FAIL))
        assert (row["status"], row["error_kind"]) == ("failed", "agent_error")
        assert row["error_message"] == (
            "The command ended with status 1. Its last output: the disk of the agent is full"
        )
        row = await run_one(gym, site, {**script(""), "command_settings": {"command": ["no-such-program"]}})
        assert "no-such-program cannot be run: No such file or directory" in row["error_message"]


async def test_a_command_that_runs_longer_than_its_limit_is_ended_and_verified(site: Site) -> None:
    mark = new_mark()
    async with AsyncGymWeb(site.base, site.key) as gym:
        agent = {**script(agent_scripts.WAIT, mark), "time_limit": 3.0}
        collection = await plan(gym, site, agent=agent, max_attempts=1)
        await until(lambda: box_folders(site, mark))
        made = box_folders(site, mark)
        row = await ended(gym, (await rollouts(gym, collection))[0]["id"])
    assert (row["status"], row["stop_reason"], row["reward"]) == ("completed", "time_limit", 0.0)
    await until(lambda: not processes(mark))
    await until(lambda: not any(folder.exists() for folder in made))


async def test_a_command_that_calls_too_often_is_ended_and_verified(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        row = await run_one(gym, site, {**script(agent_scripts.REPEAT), "max_steps": 3})
    assert (row["status"], row["stop_reason"], row["turns"]) == ("completed", "max_steps", 3)


async def test_cancelling_a_collection_ends_its_commands_and_their_processes(site: Site) -> None:
    mark = new_mark()
    async with AsyncGymWeb(site.base, site.key) as gym:
        collection = await plan(gym, site, agent=script(agent_scripts.WAIT, mark), tasks=2)
        # The launcher, the program and its own child have the mark.
        await until(lambda: len(processes(mark)) >= 4 and len(box_folders(site, mark)) == 2)
        made = box_folders(site, mark)
        await gym.request("POST", f"collections/{collection}/cancel/")
        await until(lambda: not processes(mark))
        await until(lambda: not any(folder.exists() for folder in made))
        rows = [await ended(gym, row["id"]) for row in await rollouts(gym, collection)]
        assert {row["status"] for row in rows} == {"cancelled"}


async def test_only_folders_that_the_operator_allows_are_mounted(site: Site) -> None:
    async with AsyncGymWeb(site.base, site.key) as gym:
        for settings in ({"mounts": ["/root"]}, {"files": {"../x": ""}}, {"variables": {"A=B": ""}}, {"command": []}):
            with pytest.raises(ApiError) as refused:
                await plan(gym, site, agent=script("pass", **settings))
            assert refused.value.status == 400
            assert next(iter(settings)) in str(refused.value)


@pytest.fixture
def other() -> Iterator[Site]:
    """A site whose worker a test may kill. It allows one folder, in which the installation is."""
    # Not below tmp_path: root's worker runs commands as nobody, and pytest closes its folder to other users.
    with tempfile.TemporaryDirectory(prefix="gymweb-allowed-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "bin").mkdir(mode=0o755)
        (folder / "bin" / "hello").write_text("#!/bin/sh\necho hello; cat $0/../../var/secret.txt\n")
        (folder / "bin" / "hello").chmod(0o755)
        (folder / "var").mkdir()
        (folder / "var" / "secret.txt").write_text("of the operator")
        more = {"GYMWEB_AGENT_MOUNTS": str(folder), "GYMWEB_WORKER_GRACE_SECONDS": "1"}
        with open_site(folder / "var", "--seats", "4", **more) as opened:
            yield opened


async def test_a_mounted_folder_is_on_the_path_and_never_shows_the_installation(other: Site) -> None:
    folder = str(Path(other.environment["GYMWEB_VAR"]).parent)
    command = ["sh", "-c", f"hello; ls -A {folder}/var; touch {folder}/x 2>&1; true"]
    async with AsyncGymWeb(other.base, other.key) as gym:
        agent = {"kind": "command", "command_settings": {"command": command, "mounts": [folder]}}
        row = await run_one(gym, other, agent)
        answer = (await trace(gym, row["id"]))[-2]["event"]["answer"]
        assert answer == f"hello\ntouch: cannot touch '{folder}/x': Read-only file system"
        refused = {**agent, "command_settings": {"command": command, "mounts": [f"{folder}/var"]}}
        with pytest.raises(ApiError, match="mounts"):
            await plan(gym, other, agent=refused)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_worker_that_is_killed_or_stopped_leaves_no_process(other: Site, number: int) -> None:
    mark = new_mark()
    async with AsyncGymWeb(other.base, other.key) as gym:
        await plan(gym, other, agent=script(agent_scripts.WAIT, mark))
        await until(lambda: box_folders(other, mark))
        made = box_folders(other, mark)
        os.kill(other.served.process.pid, number)
        await until(lambda: not processes(mark))
        if number == signal.SIGTERM:
            await until(lambda: not any(folder.exists() for folder in made))
