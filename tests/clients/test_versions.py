"""The client and the server are released together."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_version(path: Path) -> str:
    return str(tomllib.loads(path.read_text())["project"]["version"])


def test_client_and_server_have_the_same_version():
    assert read_version(ROOT / "clients/python/pyproject.toml") == read_version(ROOT / "pyproject.toml")
    assert f"({read_version(ROOT / 'pyproject.toml')})" in (ROOT / "CHANGELOG.md").read_text()
