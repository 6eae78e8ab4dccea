"""The Python client against a real server: files and rows in, streams, pages, downloads, and how it fails."""

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gymweb_client import ApiError, AsyncGymWeb, GymWeb
from gymweb_client.errors import ChecksumMismatch, StreamBroken, TimeIsUp, WorkFailed

from tests.clients.site import Site
from tests.factories import make_row
from tests.gymweb.serving import ROOT

pytestmark = pytest.mark.slow
CLIENT = ROOT / "clients" / "python"
ROWS = [make_row(f"What is {number} + 2?", str(number + 2), id=f"sum-{number}") for number in range(3)]


@pytest.fixture
def gym(site: Site) -> Any:
    with GymWeb(site.base, site.key) as client:
        yield client


def program(site: Site, *words: str, **environment: str) -> str:
    given = {**os.environ, "PYTHONPATH": str(CLIENT), "GYMWEB_URL": site.base, "GYMWEB_KEY": site.key, **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", *words], env=given, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scripted(site: Site) -> str:
    with GymWeb(site.base, site.key) as client:
        fields = {"slug": "mistaken", "name": "Mistaken", "provider": "scripted", "mistake_rate": 0.5}
        client.request("POST", "policy-models/", fields)
    return "mistaken"


def test_the_documented_script_runs_on_a_fresh_installation(site: Site, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "use" / "python.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    script = f"import os\nos.chdir({str(tmp_path)!r})\n{code}"
    said = program(site, "-c", script)
    assert re.search(r"^mean reward [01]\.\d+$", said, re.MULTILINE)
    assert len(re.findall(r"^\d+ \[[01., ]+\]$", said, re.MULTILINE)) == 2
    assert (tmp_path / "rollouts.jsonl").read_text().count("\n") == 24


@pytest.mark.parametrize("model", ["", "mistaken"])
def test_the_example_does_the_whole_walk(site: Site, scripted: str, model: str) -> None:
    said = program(site, str(CLIENT / "examples" / "walk.py"), MODEL=model)
    assert re.search(r"^uploaded 6 tasks as version \d of walk\n", said)
    assert re.search(r"collection \d+: completed, 48 of 48\n", said)
    files = dict(re.findall(r"(\w+)\.jsonl: (\d+) rows", said))
    assert (set(files), files["nemo_gym_rollouts"]) == ({"trl_sft", "trl_dpo", "nemo_gym_rollouts"}, "48")
    assert len(re.findall(r"^group \d+ \[", said, re.MULTILINE)) == 2
    assert said.endswith("the stream ended: completed 8\n")


def test_a_file_and_rows_make_the_same_version(gym: GymWeb, tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    first = gym.upload("same", path, environment="exact_match")
    second = gym.upload("same", iter(ROWS), note="from rows")
    assert (first["state"], first["version"], first["accepted"]) == ("ready", 1, 3)
    assert (second["version"], second["counts"]["unchanged"]) == (2, 3)


def test_a_file_with_bad_lines_is_refused_with_their_places(gym: GymWeb) -> None:
    with pytest.raises(WorkFailed, match="is rejected: ") as caught:
        gym.upload("bad", [*ROWS, {"responses_create_params": {}}], environment="exact_match")
    assert [(one["line"], one["pointer"]) for one in caught.value.row["errors"]] == [
        (4, "/responses_create_params/input")
    ]


def test_what_the_server_refuses_says_where(gym: GymWeb) -> None:
    with pytest.raises(ApiError, match="/dataset ") as caught:
        gym.plan("no-such-dataset", "no-such-model")
    assert (caught.value.status, caught.value.kind) == (400, "invalid")
    assert [error["pointer"] for error in caught.value.errors] == ["/dataset", "/policy_model"]
    with pytest.raises(ApiError, match="404 not-found"):
        gym.collection(999_999)


def test_a_missing_file_and_a_foreign_answer_are_explained(gym: GymWeb, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.jsonl"):
        gym.upload("any", tmp_path / "missing.jsonl")
    gym.upload("lines", ROWS, environment="calculator")
    with pytest.raises(ApiError, match="200 unreadable"):
        gym.request("GET", "datasets/lines/versions/1/rows/")
    with pytest.raises(ValueError, match=r"\.\./\.\./healthz is outside the API"):
        gym.request("GET", "../../healthz")


def test_a_wrong_key_is_said_to_be_one(site: Site) -> None:
    with GymWeb(site.base, "gw_no_key") as client, pytest.raises(ApiError, match="401 authentication-failed"):
        client.request("GET", "me/")


def test_pages_are_followed_to_the_end(gym: GymWeb, scripted: str) -> None:
    gym.upload("pages", ROWS, environment="exact_match")
    seen: list[int] = []
    ended = gym.wait(
        gym.plan("pages", scripted, repeats=7)["id"], look=0.1, progress=lambda row: seen.append(row["total"])
    )
    assert (ended["state"], set(seen)) == ("completed", {21})
    assert len({row["id"] for row in gym.rollouts(collection=ended["id"], limit=4)}) == 21
    assert gym.metrics(ended["id"])["mean_reward"] == pytest.approx(ended["mean_reward"])


def test_waiting_ends_when_its_time_is_up(gym: GymWeb, scripted: str) -> None:
    gym.upload("waiting", ROWS, environment="exact_match")
    collection = gym.plan("waiting", scripted, repeats=300)["id"]
    with pytest.raises(TimeIsUp):
        gym.wait(collection, seconds=0.0)
    assert gym.cancel(collection)["state"] in {"cancelled", "completed"}


def test_a_stream_that_is_left_is_cancelled(site: Site, gym: GymWeb) -> None:
    endpoint = {"base_url": site.model, "model_name": "mock"}
    asked = {"rows": ROWS, "environment": "exact_match", "endpoint": endpoint, "repeats": 1000}
    with gym.stream(**asked) as stream:
        first = next(iter(stream))
    assert (first["type"], stream.total, sum(first["segments"][0]["mask"])) == ("rollout", 3000, 6)
    assert gym.wait(stream.collection, seconds=30, look=0.1)["state"] == "cancelled"


def test_downloads_are_checked_and_go_on_where_they_stopped(gym: GymWeb, scripted: str, tmp_path: Path) -> None:
    gym.upload("files", ROWS, environment="exact_match")
    collection = gym.wait(gym.plan("files", scripted, repeats=4)["id"], look=0.1)["id"]
    export = gym.export("nemo_gym_rollouts", collection)
    path = gym.download(export, tmp_path / "rollouts.jsonl")
    whole = path.read_bytes()
    assert (len(whole), hashlib.sha256(whole).hexdigest()) == (export["bytes"], export["sha256"])
    assert gym.manifest(export["id"])["sha256"] == export["sha256"]
    part = tmp_path / "rest.part"
    for there in (0, 1, 1000, len(whole)):
        # As if it had broken off there.
        part.write_bytes(whole[:there])
        gym._run(gym._client._fetch_rest(f"exports/{export['id']}/download/", part))
        assert part.read_bytes() == whole
    with pytest.raises(ChecksumMismatch):
        gym.download({**export, "sha256": "0" * 64}, tmp_path / "wrong.jsonl")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rest.part", "rollouts.jsonl"]


def test_a_folder_has_every_file_of_the_export(gym: GymWeb, scripted: str, tmp_path: Path) -> None:
    # Of so many prompts some come to each side.
    rows = [make_row(f"What is {number} + 2?", str(number + 2), id=str(number)) for number in range(8)]
    gym.upload("folders", rows, environment="exact_match")
    collection = gym.wait(gym.plan("folders", scripted, repeats=2)["id"], look=0.1)["id"]
    wanted = {"min_reward": -1.0, "dedupe": False}
    export = gym.export("llama_factory_sft", collection, filters=wanted, validation_share=0.5)
    folder = gym.download_folder(export, tmp_path / "made" / "export")
    written = ["README.md", "dataset_info.json", "manifest.json", "train.jsonl", "validation.jsonl"]
    assert sorted(file.name for file in folder.iterdir()) == written
    for file in export["files"]:
        content = (folder / file["name"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
    assert sum(file["rows"] for file in export["files"]) == 16
    assert all(file["rows"] > 0 for file in export["files"])
    assert json.loads((folder / "manifest.json").read_text())["rows"] == 16
    info = json.loads((folder / "dataset_info.json").read_text())
    assert {one["file_name"] for one in info.values()} == {"train.jsonl", "validation.jsonl"}
    assert (folder / "README.md").read_text().startswith("---\n")


def test_the_asynchronous_client_streams_beside_other_calls(site: Site) -> None:
    async def walk() -> tuple[list[dict[str, Any]], dict[str, Any], str]:
        async with AsyncGymWeb(site.base, site.key) as client:
            endpoint = {"base_url": site.model, "model_name": "mock"}
            asked = {"rows": ROWS, "environment": "exact_match", "endpoint": endpoint, "repeats": 2, "group": True}
            async with await client.stream(**asked) as stream:
                groups, me = await asyncio.gather(_all(stream), client.request("GET", "me/"))
            return groups, stream.end, me["username"]

    async def _all(stream: Any) -> list[dict[str, Any]]:
        return [group async for group in stream]

    groups, end, name = asyncio.run(walk())
    assert [(group["is_whole"], len(group["rollouts"])) for group in groups] == [(True, 2)] * 3
    assert (end["reason"], end["completed"], name) == ("completed", 6, "engineer")


def test_a_stream_without_its_last_line_broke_off() -> None:
    async def read() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            line = b'{"type":"collection","collection":7,"total":2}\n\n{"type":"rollout","rollout":1}\n'
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(line), line))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        told = []
        async with (
            server,
            AsyncGymWeb(f"http://127.0.0.1:{port}", "key") as client,
            await client.stream(task_ids=[1]) as stream,
        ):
            with pytest.raises(StreamBroken, match="collection 7"):
                async for rollout in stream:
                    told.append(rollout["rollout"])  # noqa: PERF401 (a comprehension loses what came before)
            assert (told, stream.end) == ([1], {})

    asyncio.run(read())


def test_a_stream_cancelled_elsewhere_is_not_a_success(site: Site, gym: GymWeb) -> None:
    endpoint = {"base_url": site.model, "model_name": "mock"}
    asked = {"rows": ROWS, "environment": "exact_match", "endpoint": endpoint, "repeats": 1000}
    with gym.stream(**asked) as stream:
        gym.cancel(stream.collection)
        with pytest.raises(StreamBroken, match="before it was complete: cancelled"):
            list(stream)
    assert stream.end["reason"] == "cancelled"


def test_the_client_is_small() -> None:
    files = sorted((CLIENT / "gymweb_client").glob("*.py"))
    assert sum(len(file.read_text().splitlines()) for file in files) <= 700
    imported = {
        name for file in files for name in re.findall(r"^(?:from|import) (\w+)", file.read_text(), re.MULTILINE)
    }
    assert imported - set(sys.stdlib_module_names) == {"aiohttp", "gymweb_client"}
