"""A file leaves whole or from the middle, with the headers that let a download resume."""

import asyncio
import os

import pytest
from django.http import Http404
from django.test import AsyncRequestFactory, RequestFactory

from apps.exports.ranged_downloads import stream_file
from apps.exports.tar_archives import CHUNK_BYTES

CONTENT = bytes(range(256)) * 4000  # a little under 1 MB: several chunks


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_bytes(CONTENT)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    return file


def get(path, method="get", **headers):
    request = getattr(RequestFactory(), method)("/", headers={key.replace("_", "-"): v for key, v in headers.items()})
    return stream_file(request, path, filename="pairs.jsonl", content_type="application/x-ndjson")


def body(response) -> bytes:
    return response.getvalue()


def test_a_file_is_an_attachment_in_full(path):
    response = get(path)
    assert (response.status_code, body(response)) == (200, CONTENT)
    assert dict(response.items()) == {
        "Content-Type": "application/x-ndjson",
        "Content-Length": "1024000",
        "Content-Disposition": 'attachment; filename="pairs.jsonl"',
        "Accept-Ranges": "bytes",
        "ETag": '"fa000-17979cfe362a0000"',
        "Last-Modified": "Tue, 14 Nov 2023 22:13:20 GMT",
        "Cache-Control": "private, no-cache",
        "X-Content-Type-Options": "nosniff",
    }


def test_over_asgi_the_body_comes_in_chunks_of_256_kb(path):
    response = stream_file(AsyncRequestFactory().get("/"), path, filename="pairs.jsonl")

    async def collect() -> list[bytes]:
        return [chunk async for chunk in response]

    chunks = asyncio.run(collect())
    assert b"".join(chunks) == CONTENT
    assert [len(chunk) for chunk in chunks] == [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES, 1024000 - 3 * CHUNK_BYTES]


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=1000-", 1000, 1024000),
        ("bytes=5-300000", 5, 300001),
        ("bytes=1023990-9999999", 1023990, 1024000),
        ("bytes=-10", 1023990, 1024000),
        ("bytes=-9999999", 0, 1024000),
    ],
)
def test_one_range_is_sent_as_a_part(path, asked, start, stop):
    response = get(path, range=asked)
    assert (response.status_code, body(response)) == (206, CONTENT[start:stop])
    assert response["Content-Range"] == f"bytes {start}-{stop - 1}/1024000"
    assert response["Content-Length"] == str(stop - start)


@pytest.mark.parametrize("asked", ["bytes=1024000-", "bytes=-0", "bytes=2000000-3000000"])
def test_a_range_outside_the_file_is_416_with_the_size(path, asked):
    response = get(path, range=asked)
    assert (response.status_code, body(response), response["Content-Range"]) == (416, b"", "bytes */1024000")


@pytest.mark.parametrize("asked", ["bytes=0-1,5-6", "bytes=-", "bytes=9-3", "lines=1-2", "bytes=a-b"])
def test_a_range_that_is_not_one_range_gets_the_whole_file(path, asked):
    assert get(path, range=asked).status_code == 200


def test_if_range_resumes_only_the_same_file(path):
    etag, changed = get(path)["ETag"], get(path)["Last-Modified"]
    statuses = [
        get(path, range="bytes=5-", if_range=known).status_code
        for known in (etag, changed, '"other"', f"W/{etag}", "Tue, 14 Nov 2023 22:13:21 GMT")
    ]
    assert statuses == [206, 206, 200, 200, 200]


def test_what_the_client_has_is_not_sent_again(path):
    etag = get(path)["ETag"]
    statuses = [get(path, if_none_match=known).status_code for known in (etag, f'"x", W/{etag}', "*", '"x"')]
    assert statuses == [304, 304, 304, 200]
    assert body(get(path, if_none_match=etag)) == b""
    assert "Content-Length" not in get(path, if_none_match=etag)


def test_another_content_has_another_etag(path):
    before = get(path)["ETag"]
    path.write_bytes(CONTENT[:-1] + b"x")
    assert get(path)["ETag"] != before


def test_a_known_checksum_is_the_etag(path):
    response = stream_file(RequestFactory().get("/"), path, filename="x", sha256="ab" * 32)
    assert response["ETag"] == f'"{"ab" * 32}"'


def test_head_says_how_long_the_file_is_without_reading_it(path):
    response = get(path, "head", range="bytes=0-9")
    assert (response.status_code, response["Content-Length"], body(response)) == (200, "1024000", b"")


def test_a_name_cannot_break_out_of_its_header(path):
    response = stream_file(RequestFactory().get("/"), path, filename='pä"i\r\nrs.jsonl')
    assert response["Content-Disposition"] == "attachment; filename*=utf-8''p%C3%A4%22i%0D%0Ars.jsonl"


def test_an_empty_file_is_sent_as_nothing(path):
    path.write_bytes(b"")
    assert (get(path).status_code, body(get(path)), get(path, range="bytes=0-").status_code) == (200, b"", 416)


def test_a_deleted_file_is_not_found(path):
    path.unlink()
    with pytest.raises(Http404):
        get(path)
