"""Send the REST calls of docs/develop/rest_walk.md as they are written: each succeeds, and they end in a file."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from apps.accounts.api_keys import create_api_key
from apps.exports.export_jobs import write_queued_export
from apps.rollouts.models import Collection
from tests.factories import make_rollout, make_trace, make_user

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "develop" / "rest_walk.md").read_text()
ROW = re.search(r"```json\n(.*)\n```", PAGE)


class Call(NamedTuple):
    method: str
    path: str
    body: bytes
    content_type: str
    is_form: bool


def read_calls() -> list[Call]:
    """Return every curl call of the page in order. Options that the page does not use fail."""
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    words = shlex.split(blocks.replace("\\\n", " ").replace("|", "\n"), comments=True)
    starts = [place for place, word in enumerate(words) if word == "curl"]
    return [parse_call(words[start + 1 :]) for start in starts]


def parse_call(words: list[str]) -> Call:
    assert ROW is not None
    method, path, body, content_type, is_form = "", "", b"", "", False
    rest = iter(words)
    for word in rest:
        if word == "-H":
            name, _, value = next(rest).partition(": ")
            assert name in {"$AUTH", "Content-Type"}
            content_type = value or content_type
        elif word == "-X":
            method = next(rest)
        elif word == "-d":
            body, method = next(rest).encode(), method or "POST"
        elif word == "-F":
            assert next(rest) == "file=@sums.jsonl"
            body, is_form, method = f"{ROW[1]}\n".encode(), True, "POST"
        elif word == "-T":
            assert next(rest) == "-"
            body, method = f"{ROW[1]}\n".encode() * 3, method or "PUT"
        elif word.startswith("$GYMWEB/"):
            path = word.replace("$GYMWEB", "/api/v1")
        elif word != "-OJ":
            break
    return Call(method or "GET", path, body, content_type, is_form)


def with_ids(call: Call, made: dict[str, int]) -> Call:
    """Replace the ids of the page, which count from 1: other tests may have used these numbers."""
    path, body = call.path, call.body.decode()
    for noun, name in (("collections", "collection"), ("pair-sets", "pair_set"), ("exports", "export")):
        path = path.replace(f"/{noun}/1/", f"/{noun}/{made.get(noun)}/").replace(
            f"{name}=1", f"{name}={made.get(noun)}"
        )
        body = body.replace(f'"{name}": 1', f'"{name}": {made.get(noun)}')
    return call._replace(path=path, body=body.encode())


def send(client: Client, call: Call) -> Any:
    if call.is_form:
        reply: Any = client.post(call.path, {"file": SimpleUploadedFile("sums.jsonl", call.body)})
    else:
        reply = client.generic(call.method, call.path, call.body, content_type=call.content_type or "application/json")
    content = b"".join(reply.streaming_content) if reply.streaming else reply.content
    assert reply.status_code < 300, f"{call.method} {call.path}: {reply.status_code} {content!r}"
    return json.loads(content) if reply["Content-Type"].startswith("application/json") else content


def test_the_page_has_every_step() -> None:
    called = [re.sub(r"/api/v1/|\?.*", "", call.path) for call in read_calls()]
    nouns = ["policy-models", "policy-models", "policy-models", "datasets", "datasets", "datasets"]
    nouns += ["collections", "collections", "collections", "rollouts", "pair-sets", "exports", "exports", "exports"]
    assert [path.split("/")[0] for path in called] == nouns


@pytest.mark.django_db
def test_every_call_succeeds_and_the_last_one_returns_a_file(settings: Settings, tmp_path: Path) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.1:8001"]
    settings.UPLOADS_DIR, settings.EXPORTS_DIR = tmp_path / "uploads", tmp_path / "exports"
    _, token = create_api_key(user=make_user("engineer"), name="walk", scopes=["admin"])
    client = Client(headers={"Authorization": f"Bearer {token}"})
    made: dict[str, int] = {}
    for call in read_calls():
        answer = send(client, with_ids(call, made))
        if call.method == "POST" and "id" in answer:
            made.setdefault(call.path.split("/")[3], answer["id"])
        if call.path.endswith("/collections/"):
            finish(Collection.objects.get(pk=answer["id"]))
        if call.path.endswith("/exports/"):
            while write_queued_export():
                pass
    lines = [json.loads(line) for line in answer.decode().splitlines()]
    assert len(lines) == 12
    assert {tuple(line)[:1] for line in lines} == {("messages",)}


def finish(collection: Collection) -> None:
    """What a worker would have done, half of it rewarded: 3 tasks × 8 repeats."""
    assert collection.rollouts.count() == 24
    collection.rollouts.all().delete()
    for task in collection.version.tasks.all():
        for repeat in range(8):
            trace = make_trace(str(repeat), repeat % 2)
            make_rollout(collection, task=task, repeat=repeat, reward=float(repeat % 2), trace=trace)
    ended = {"state": Collection.State.COMPLETED, "completed": 24, "finished_at": timezone.now()}
    Collection.objects.filter(pk=collection.pk).update(**ended)
