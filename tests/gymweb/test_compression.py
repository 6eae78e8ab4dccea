"""Which responses are compressed: HTML and JSON over 1 KB, and never a stream of events or a download."""

import asyncio
import gzip
import os
import subprocess
import sys

import aiohttp
import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.test import RequestFactory

from apps.accounts.models import Role
from gymweb.compression import CompressionMiddleware
from scripts.servers import own_settings
from tests.access.routes import every_route
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_rollout
from tests.gymweb.serving import ROOT, serving
from tests.migrated import lay_out

GZIP = {"Accept-Encoding": "gzip"}
TEXTS = ("text/html", "text/plain", "application/vnd.oai.openapi")


def is_to_be_compressed(response: HttpResponse) -> bool:
    kind = response.get("Content-Type", "").partition(";")[0]
    large = response.streaming or len(response.content) > 1024
    return large and (kind in TEXTS or kind.endswith(("/json", "+json")))


def body_of(response) -> bytes:
    return response.getvalue() if response.streaming else response.content


@pytest.mark.slow
@pytest.mark.django_db
def test_every_route_compresses_html_and_json_over_1_kb():
    collection = make_collection()
    rollouts = [make_rollout(collection) for _ in range(3)]
    client = signed_in(Role.ADMIN)
    client.raise_request_exception = False
    paths = [route.path for route in every_route() if "GET" in route.rules and "sign-out" not in route.path]
    for sample, pk in (("collections/999999", collection.pk), ("rollouts/999999", rollouts[0].pk)):
        paths += [path.replace(sample, f"{sample.split('/')[0]}/{pk}") for path in paths if sample in path]
    compressed, wrong = set(), []
    for path in paths:
        plain, packed = client.get(path), client.get(path, headers=GZIP)
        is_packed = packed.get("Content-Encoding") == "gzip"
        if is_packed != is_to_be_compressed(plain):
            wrong.append((path, plain.status_code, plain.get("Content-Type")))
        if plain.has_header("Content-Encoding"):
            wrong.append((path, "compressed for a client that does not read gzip"))
        if not is_packed:
            continue
        compressed.add(path)
        sent = body_of(packed)
        assert abs(len(gzip.decompress(sent)) - len(body_of(plain))) < 200, path  # tokens and times differ
        assert packed.get("Content-Length", str(len(sent))) == str(len(sent)), path
        assert {"Accept-Encoding"} <= {name.strip() for name in packed["Vary"].split(",")}, path
    assert wrong == []
    pages = [f"/collections/{collection.pk}/", "/rollouts/", f"/rollouts/{rollouts[0].pk}/", "/api/v1/rollouts/"]
    assert {*pages, f"/rollouts/{rollouts[0].pk}/raw/"} <= compressed


@pytest.mark.parametrize(
    "kind", ["text/event-stream", "application/x-ndjson", "text/csv", "image/png", "application/x-tar"]
)
@pytest.mark.parametrize("stream", [True, False])
def test_event_streams_and_files_are_not_compressed(kind, stream):
    def view(request):
        return StreamingHttpResponse([b"x" * 5000], content_type=kind) if stream else HttpResponse(b"x" * 5000, kind)

    response = CompressionMiddleware(view)(RequestFactory().get("/", headers=GZIP))
    assert (body_of(response), response.has_header("Content-Encoding")) == (b"x" * 5000, False)


@pytest.mark.parametrize(
    ("name", "value"), [("Accept-Ranges", "bytes"), ("Content-Range", "bytes 0-4/9"), ("Content-Encoding", "br")]
)
def test_a_file_with_ranges_or_its_own_encoding_keeps_its_bytes_and_tag(name, value):
    def view(request):
        return HttpResponse(b"x" * 5000, "application/json", headers={name: value, "ETag": '"tag"'})

    response = CompressionMiddleware(view)(RequestFactory().get("/", headers=GZIP))
    assert (response.content, response["ETag"]) == (b"x" * 5000, '"tag"')


@pytest.mark.parametrize(("size", "is_compressed"), [(1024, False), (1025, True)])
def test_a_response_over_1_kb_is_compressed(size, is_compressed):
    middleware = CompressionMiddleware(lambda request: HttpResponse(b"x" * size, "application/problem+json"))
    assert middleware(RequestFactory().get("/", headers=GZIP)).has_header("Content-Encoding") == is_compressed


@pytest.mark.django_db
def test_a_compressed_answer_is_not_sent_again_while_it_is_unchanged():
    client = signed_in(Role.ADMIN)
    first = client.get("/api/v1/environments/", headers=GZIP)
    again = client.get("/api/v1/environments/", headers={**GZIP, "If-None-Match": first["ETag"]})
    assert (first["Content-Encoding"], again.status_code) == ("gzip", 304)


SEED = """
from django.test import Client
from apps.accounts.models import User
from tests.factories import make_collection, make_rollout
from apps.gym.traces.events import Prompt
from apps.gym.traces.items import message
client = Client()
client.force_login(User.objects.create_user("admin", role="admin"))
trace = [Prompt(items=[message("user", f"Question {n} " * 2000)]) for n in range(20)]
rollout = make_rollout(make_collection(), trace=trace)
print("seeded:", client.cookies["sessionid"].value, rollout.pk)
"""


def test_a_client_reads_a_compressed_stream_of_many_pieces_whole(tmp_path):
    """A gzip member for each piece would end at the first one for browsers and aiohttp."""
    lay_out(tmp_path / "gymweb.sqlite3")
    words = [sys.executable, "manage.py", "shell", "-v", "0", "-c", SEED]
    environment = {**os.environ, **own_settings(tmp_path)}
    made = subprocess.run(words, cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE)
    session, rollout = made.stdout.split("seeded:")[1].split()

    async def read(port: int, encoding: str) -> tuple[str | None, bytes]:
        async with (
            aiohttp.ClientSession(cookies={"sessionid": session}) as client,
            client.get(
                f"http://127.0.0.1:{port}/rollouts/{rollout}/raw/", headers={"Accept-Encoding": encoding}
            ) as reply,
        ):
            return reply.headers.get("Content-Encoding"), await reply.read()

    with serving(tmp_path, "--no-worker", **own_settings(tmp_path)) as server:
        plain = asyncio.run(read(server.port, "identity"))
        packed = asyncio.run(read(server.port, "gzip"))
    assert (plain[0], packed[0]) == (None, "gzip")
    assert len(plain[1]) > 400_000
    assert plain[1] == packed[1]
