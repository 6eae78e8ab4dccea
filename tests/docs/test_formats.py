"""docs/develop/formats.md lists every export format with its content and encodings."""

import re
from pathlib import Path

from apps.gym.exporters.registry import FORMATS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "develop" / "formats.md").read_text()


def test_every_format_is_listed_with_its_content_and_encodings():
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (\w+) \| ([\w., ]+) \|$", PAGE, re.MULTILINE)
    assert rows == [(slug, each.row_kind, ", ".join(each.encodings)) for slug, each in FORMATS.items()]
