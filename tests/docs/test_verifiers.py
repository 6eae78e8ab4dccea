"""The verifier reference is written from the code, and the verifiers shown in docs/use/verifiers.md work."""

import json
import re
from pathlib import Path

from apps.gym.verifiers.registry import VERIFIERS, read_verifier
from scripts.verifier_reference import PAGE, render

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "use" / "verifiers.md").read_text()


def test_the_reference_is_as_the_code_writes_it():
    assert render() == PAGE.read_text(), "run: python scripts/verifier_reference.py --write"


def test_the_reference_lists_every_verifier():
    assert re.findall(r"^## .*: `(\w+)`$", PAGE.read_text(), re.MULTILINE) == list(VERIFIERS)


def test_the_guide_names_every_verifier():
    assert [kind for kind in VERIFIERS if f"`{kind}`" not in GUIDE] == []


def test_the_verifiers_that_the_guide_shows_can_be_used():
    blocks = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    inline = re.findall(r'^\| \w[^|]*\| `(\{"type".*?\})`', GUIDE, re.MULTILINE)
    assert (len(blocks), len(inline)) == (1, 8)
    for given in [*blocks, *inline]:
        assert read_verifier(json.loads(given))
