"""Boxes, without a worker."""

import asyncio
import json
import os
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from apps.gym.boxes import bubblewrap_box
from apps.gym.boxes.box_folders import BoxFolders
from apps.gym.boxes.bubblewrap_box import BubblewrapBox, box_owner
from apps.gym.boxes.protocol import BoxFailed, BoxLimits
from apps.gym.sandbox.choosing import Choice, find_python
from tests.gym.sandbox.needing import needs_group, needs_sandbox

pytestmark = needs_sandbox
FAMILIES = """
import json, socket
def tries(family):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        return True
    except OSError:
        return False
print(json.dumps([tries(family) for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 17, 40)]))
"""
ASK = """
import sys, urllib.request
def ask(body):
    return urllib.request.urlopen(sys.argv[1], body, timeout=30).read()
print(ask(b"x" * 3_000_000).decode(), ask(b"y").decode())
"""


@asynccontextmanager
async def box(**limits):
    async def answer(request):
        return web.Response(text=str(len(await request.read())))

    folders = BoxFolders(box_owner())
    place = folders.make()
    application = web.Application(client_max_size=10**7)
    application.router.add_post("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.UnixSite(runner, str(place / "s")).start()
    folders.give(place / "s")
    python = find_python(Choice())
    made = BubblewrapBox(folders=folders, socket=str(place / "s"), python=python, limits=BoxLimits(**limits))
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
        await runner.cleanup()
        folders.close()
        assert not folders.path.exists()


def run(command, **limits):
    async def main():
        async with box(**limits) as made:
            return await made.exec(command, {})

    return asyncio.run(main())


def test_the_relay_passes_large_requests_on():
    ended = run(["python3", "-c", ASK, BubblewrapBox.url])
    assert ended.stdout == b"3000000 1\n", ended.stderr


def test_sockets_to_other_networks_cannot_be_opened():
    ended = run(["python3", "-c", FAMILIES])
    assert json.loads(ended.stdout) == [True, True, True, False, False]


def test_a_box_has_its_files_and_one_use_of_its_life():
    async def main():
        async with box() as made:
            await made.upload("a/b", b"1")
            ended = await made.exec(["sh", "-c", "cat a/b; echo 2 > c; exit 3"], {})
            assert (ended.status, ended.stdout) == (3, b"1")
            assert await made.download("c", 10) == b"2\n"
            with pytest.raises(BoxFailed, match="before the first command"):
                await made.upload("d", b"")
            await made.stop()
            with pytest.raises(BoxFailed, match="not running"):
                await made.exec(["true"], {})

    asyncio.run(main())


def test_background_processes_end_with_the_command():
    ended = run(["sh", "-c", "(sleep 300; echo late) & echo done"])
    assert ended.stdout == b"done\n"


def test_the_start_of_the_output_and_the_end_of_the_errors_are_kept():
    program = "import sys; print('a' * 50); sys.stderr.write('b' * 50 + 'c'); sys.stdout.write('z' * 10**6)"
    ended = run(["python3", "-c", program], output=40)
    assert ended.stdout == b"a" * 40
    assert ended.stderr == b"b" * 39 + b"c"


def test_too_many_files_end_the_command(monkeypatch):
    monkeypatch.setattr(bubblewrap_box, "MEASURE_SECONDS", 0.1)
    program = "for n in range(40):\n  open(str(n), 'wb').write(b'x' * 10**6)\nimport time; time.sleep(60)"
    with pytest.raises(BoxFailed, match="more than 19 MB"):
        run(["python3", "-c", program], files=20 * 10**6)


@needs_group
def test_memory_of_all_processes_is_limited():
    ended = run(["python3", "-c", "x = b'x' * 400 * 2**20; print('kept')"], memory=200 * 2**20)
    assert (ended.status, ended.stdout) == (137, b"")


def test_a_command_with_a_huge_argument_is_refused():
    with pytest.raises(BoxFailed, match="cannot start"):
        run(["echo", "x" * 200_000])


def test_a_missing_bubblewrap_is_named(monkeypatch):
    monkeypatch.setattr("apps.gym.sandbox.bubblewrap.shutil.which", lambda *_, **__: None)
    with pytest.raises(BoxFailed, match="bwrap is not installed: apt-get install bubblewrap"):
        run(["true"])


def test_processes_end_with_a_worker_that_bubblewrap_did_not_watch_yet(monkeypatch):
    pipes, pipe = [], os.pipe
    monkeypatch.setattr(os, "pipe", lambda: pipes.append(pipe()) or pipes[-1])

    async def run():
        async with box() as made, asyncio.timeout(30):
            pipes.clear()
            running = asyncio.create_task(made.exec(["sh", "-c", "touch ready; sleep 600"], {}))
            while await made.download("ready", 1) is None:
                await asyncio.sleep(0.01)
            # As in a worker that was killed, nothing reads the pipe any more.
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, pipes[0][0])
            os.close(nothing)
            with pytest.raises(BoxFailed, match="did not start"):
                await running

    asyncio.run(run())
