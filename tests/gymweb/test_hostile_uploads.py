"""Files made to hurt, sent to a real server: each is refused with what was wrong, and costs next to no memory."""

import json

import pytest

from scripts.hostile_uploads import GOOD, hostile_files
from scripts.measure_uploads import send_hostile
from scripts.measured_server import Api, prepare
from scripts.measuring import ALLOWED_GROWTH_MB
from tests.gymweb.serving import read_response, serving

EXPECTED = {
    "gzip bomb": (413, "unpacks_too_large", "GYMWEB_MAX_UNPACK_RATIO"),
    "gzip bomb of good rows": (413, "unpacks_too_large", "GYMWEB_MAX_UNPACK_RATIO"),
    "zstd bomb": (413, "unpacks_too_large", "GYMWEB_MAX_UNPACK_RATIO"),
    "1 GB line": (400, "too_long", ""),
    "1 GB quote in CSV": (400, "too_long", ""),
    "1 GB array element": (413, "too_long", "GYMWEB_MAX_LINE_BYTES"),
    "100,000 deep": (400, "too_deep", ""),
    "100,000 deep array": (400, "too_deep", ""),
    "zero bytes": (400, "not_text", ""),
    "zero byte in a text": (400, "not_text", ""),
    "UTF-16": (400, "not_utf8", ""),
    "Latin-1": (400, "not_utf8", ""),
    "Parquet, one huge page": (413, "page_too_large", "GYMWEB_PARQUET_MEMORY_BYTES"),
    "Parquet, cut off": (400, "not_parquet", ""),
    "name twice": (400, "duplicate_key", ""),
    "NaN": (400, "not_finite", ""),
    "Infinity": (400, "not_finite", ""),
    "10^400": (400, "not_finite", ""),
    "1e400": (400, "not_finite", ""),
    "half a surrogate pair": (400, "not_json", ""),
    "bad rows": (400, "not_json", ""),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A server, and the key of somebody who may upload."""
    var = tmp_path_factory.mktemp("var")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("GYMWEB_VAR", str(var))
        monkeypatch.setenv("GYMWEB_DATABASE_URL", f"sqlite:///{var}/gymweb.sqlite3")
        monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "gymweb.settings")
        key = prepare(var)
        with serving(var, "--no-worker", DJANGO_SETTINGS_MODULE="gymweb.settings") as served:
            yield served, key


@pytest.mark.slow
def test_a_slow_upload_does_not_block_others(site):
    served, key = site
    api = Api(served, key)
    head = (
        "POST /api/v1/datasets/running/uploads/?wait=true HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/x-ndjson\r\nContent-Length: {2 * len(GOOD)}\r\n\r\n"
    )
    with served.connect() as slow:
        slow.sendall(head.encode() + GOOD)
        for _ in range(2):
            assert api.call("POST", "datasets/running/uploads/?wait=true", GOOD, "application/x-ndjson")[0] == 201
        slow.sendall(GOOD)
        status, _, body = read_response(slow)
    assert (status, json.loads(body)["accepted"]) == (201, 2 * GOOD.count(b"\n"))
    _, versions = api.call("GET", "datasets/running/versions/")
    assert [one["number"] for one in versions["results"]] == [4, 3, 2, 1]


@pytest.mark.slow
def test_hostile_files_are_refused_by_name_and_cost_no_memory(site, capsys):
    served, key = site
    seen, grown = {}, {}
    api = Api(served, key)
    assert api.call("POST", "datasets/measured/uploads/?wait=true", GOOD, "application/x-ndjson")[0] == 201
    # A tenth of the sizes that `make transfers` sends: what a line costs does not depend on its length.
    for name, body in hostile_files(0.1):
        answer = send_hostile(api, served, name, body)
        seen[name] = (answer["status"], answer["code"], answer["limit"])
        grown[name] = answer["growth_mb"]
    _, after = api.call("GET", "datasets/measured/")
    with capsys.disabled():
        print(json.dumps({"measured": "upload.hostile", "growth_mb": grown}))
    assert seen == EXPECTED
    assert max(grown.values()) < ALLOWED_GROWTH_MB
    assert (after["version_count"], after["latest_version"]["task_count"]) == (1, 1)
