"""The client and the server are released together."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_version(path: Path) -> str:
    return str(tomllib.loads(path.read_text())["project"]["version"])


def test_client_and_server_have_the_same_version():
    assert read_version(ROOT / "clients/python/pyproject.toml") == read_version(ROOT / "pyproject.toml")


def test_the_changelog_begins_with_this_version():
    version = read_version(ROOT / "pyproject.toml")
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    if headings[0] == "## [Unreleased]":
        headings.pop(0)
    # A development version has the heading [Unreleased] and its number in parentheses.
    wanted = f"## [Unreleased] ({version})" if ".dev" in version else f"## [{version}] - "
    assert headings[0].startswith(wanted)
