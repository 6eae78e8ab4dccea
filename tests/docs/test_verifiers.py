"""docs/verifiers.md says of each verifier what its own code says."""

import inspect
import json
import re
from pathlib import Path

import pytest

from apps.gym.verifiers.parameters_reader import parameters_schema
from apps.gym.verifiers.registry import VERIFIERS, read_verifier

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "verifiers.md").read_text()


def section(kind: str) -> str:
    return re.split(r"^### ", PAGE.partition(f"### {VERIFIERS[kind].title}: `{kind}`\n")[2], flags=re.MULTILINE)[0]


def test_the_page_lists_the_verifiers_that_there_are():
    assert re.findall(r"^### .*: `(\w+)`$", PAGE, re.MULTILINE) == list(VERIFIERS)


@pytest.mark.parametrize("kind", VERIFIERS)
def test_a_verifier_is_described_as_its_docstring_does(kind: str):
    assert inspect.getdoc(VERIFIERS[kind]) in section(kind)


@pytest.mark.parametrize("kind", VERIFIERS)
def test_each_parameter_has_a_row_with_its_meaning(kind: str):
    rows = [line.split("|") for line in section(kind).splitlines() if line.startswith("| `")]
    told = {cells[1].split("`")[1]: cells[4] for cells in rows}
    parameters = {name: one for name, one in parameters_schema(VERIFIERS[kind])["properties"].items() if name != "type"}
    assert list(told) == list(parameters)
    for name, schema in parameters.items():
        assert schema["title"] in told[name]
        assert schema.get("description", "") in told[name]


def test_the_verifiers_that_the_page_shows_can_be_used():
    blocks = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    inline = re.findall(r'^\| \w[^|]*\| `(\{"type".*?\})`', PAGE, re.MULTILINE)
    assert (len(blocks), len(inline)) == (1, 8)
    for given in [*blocks, *inline]:
        assert read_verifier(json.loads(given))
