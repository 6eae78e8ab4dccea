"""`make sbom` lists the packages of requirements.txt, and nothing about the machine that wrote the list."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.bill_of_materials import ROOT, read_packages, write_bill

pytest.importorskip("cyclonedx_py", reason="cyclonedx-bom is not installed")


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_bill(tmp_path_factory.mktemp("bill"))


def test_the_bill_lists_the_locked_packages_with_their_addresses(bill: dict[str, Any]):
    locked = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert len(locked) > 50
    assert read_packages(bill) == dict(locked)
    assert {component["purl"] for component in bill["components"]} >= {"pkg:pypi/django@" + dict(locked)["django"]}
    about = bill["metadata"]["component"]
    assert (bill["bomFormat"], about["name"], about["version"]) == ("CycloneDX", "gymweb", settings.VERSION)


def test_the_bill_is_the_same_each_time_and_names_no_private_index(
    bill: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:password@index.example.org/simple")
    again = write_bill(tmp_path)
    assert "example.org" not in json.dumps(again)
    assert again == bill
