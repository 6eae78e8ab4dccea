import hashlib
import json
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders

LISTED = json.loads((Path(settings.BASE_DIR) / "static/vendor/VENDOR.json").read_text())


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry["name"])
def test_a_foreign_file_is_the_one_that_was_looked_at(entry: dict[str, str]):
    path = finders.find(entry["file"])
    assert path is not None
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == entry["sha256"]
    assert finders.find(entry["licence_file"]) is not None
