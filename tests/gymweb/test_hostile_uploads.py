"""Files made to hurt, sent to a real server: each is refused with what was wrong, and costs next to no memory."""

import json

import pytest

from scripts.measure_uploads import ALLOWED_GROWTH_MB, GOOD, Api, hostile_files, prepare, send_hostile
from tests.gymweb.serving import serving

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


@pytest.mark.slow
def test_hostile_files_are_refused_by_name_and_cost_no_memory(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GYMWEB_VAR", str(tmp_path))
    monkeypatch.setenv("GYMWEB_DATABASE_URL", f"sqlite:///{tmp_path}/gymweb.sqlite3")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "gymweb.settings")
    key = prepare(tmp_path)
    seen, grown = {}, {}
    with serving(tmp_path, "--no-worker", DJANGO_SETTINGS_MODULE="gymweb.settings") as served:
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
