"""Which of the real routes take files, and from whom; the server itself is tested in test_serving.py."""

import os
import subprocess

import pytest
from django.conf import settings
from django.urls import reverse

from gymweb.spooling import MAX_CALL_BYTES, BodyRefused, SpooledBody, body_limit, spool


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB; unmounted when the test ends."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no small disk: mounting one needs root and the right to mount")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


LARGE, SMALL = settings.MAX_BODY_BYTES, settings.DATA_UPLOAD_MAX_MEMORY_SIZE


def limit(path, *, method=b"POST", authorization=(), cookies=()):
    return body_limit(method, path.encode(), authorization=authorization, cookies=cookies).size


@pytest.mark.parametrize(
    "path",
    [
        reverse("dashboard:dataset_upload", args=["arithmetic"]),
        reverse("api:dataset-uploads", args=["arithmetic"]),
        reverse("api:dataset-uploads", args=["arithmetic"]) + "?on_error=skip",
        "/api/v1/datasets/a%72ithmetic/uploads/",
    ],
)
def test_files_are_taken_where_they_are_uploaded_from_callers_with_a_credential(path):
    session = f"theme=dark; {settings.SESSION_COOKIE_NAME}=abc".encode()
    assert limit(path, authorization=[b"Bearer gw_a_b"]) == LARGE
    assert limit(path, cookies=[session]) == LARGE
    assert limit(path, cookies=[b"theme=dark", session]) == LARGE
    assert limit(path) == limit(path, authorization=[b""]) == limit(path, cookies=[b"theme=dark"]) == SMALL
    assert limit(path, authorization=[b"Bearer gw_a_b"], method=b"PUT") == SMALL


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/uploads/",
        "/uploads/1/",
        "/datasets/uploads/",
        "/nothing/uploads/",
        "/datasets/a/upload",
        "/datasets/a/upload/more",
        "/api/v1/uploads/",
        "/api/v1/uploads/1/parts/",
        "/api/v1/datasets/a/uploads/parts/",
        "/api/v1/datasets/a%00b/uploads/",
        "/api/v1/datasets/\xff/uploads/",
        "/api/v1/datasets/%ff/uploads/",
        "http://localhost/datasets/a/upload/",
        "*",
    ],
)
def test_no_other_address_takes_files(path):
    assert limit(path, authorization=[b"Bearer gw_a_b"]) == SMALL


def test_an_unclosed_body_is_not_counted_for_ever(settings, tmp_path):
    settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path)
    before = spool.size
    for close in (lambda body: body.close(), lambda body: body.detach().close(), lambda body: None):
        body = SpooledBody()
        body.write(bytes(60_000))
        assert spool.size == before
        body.write(bytes(60_000))
        assert spool.size == before + 120_000
        close(body)
        del body
        assert spool.size == before


def test_a_body_that_the_disk_refuses_is_refused_with_507_and_can_be_closed(settings, small_disk):
    settings.FILE_UPLOAD_TEMP_DIR, settings.MIN_FREE_BYTES = str(small_disk), 0
    body = SpooledBody()
    with pytest.raises(BodyRefused) as refused:
        for _ in range(100):
            body.write(bytes(60_000))
        body.finish()
    assert (refused.value.status, refused.value.kind) == (507, "disk-full")
    body.close()
    assert list(small_disk.iterdir()) == []


def test_a_captured_call_is_compared_with_no_route(monkeypatch):
    monkeypatch.setattr("gymweb.spooling.resolve", lambda path: pytest.fail(f"resolved {path}"))
    assert limit("/capture/cs_1_x/v1/messages?beta=true", authorization=[b"Bearer cs_1_x"]) == MAX_CALL_BYTES
