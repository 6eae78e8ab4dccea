"""Which of the real routes take files, and from whom; the server itself is tested in test_serving.py."""

import pytest
from django.conf import settings
from django.urls import reverse

from gymweb.spooling import SpooledBody, body_limit, spool

LARGE, SMALL = settings.MAX_BODY_BYTES, settings.DATA_UPLOAD_MAX_MEMORY_SIZE


def limit(path, *, method=b"POST", authorization=(), cookies=()):
    return body_limit(method, path.encode(), authorization=authorization, cookies=cookies)


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


def test_a_body_that_nobody_closes_is_not_counted_for_ever(settings, tmp_path):
    settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path)
    before = spool.size
    for close in (lambda body: body.close(), lambda body: body.hand_over().close(), lambda body: None):
        body = SpooledBody()
        body.write(bytes(60_000))
        assert spool.size == before
        body.write(bytes(60_000))
        assert spool.size == before + 120_000
        close(body)
        del body
        assert spool.size == before
