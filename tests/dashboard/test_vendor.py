import hashlib
import json
import re
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


def test_every_foreign_file_that_a_page_names_is_listed():
    templates = Path(settings.BASE_DIR, "templates").rglob("*.html")
    named = {path for page in templates for path in re.findall(r"'(vendor/[^']+)'", page.read_text())}
    assert named
    assert named <= {entry["file"] for entry in LISTED}
