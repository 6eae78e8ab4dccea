"""docs/openapi.yaml, read once a process: that takes a second without the C loader."""

from typing import Any

import yaml

from tests.gymweb.serving import ROOT

DOCUMENT: dict[str, Any] = yaml.load((ROOT / "docs" / "openapi.yaml").read_text(), Loader=yaml.CSafeLoader)
