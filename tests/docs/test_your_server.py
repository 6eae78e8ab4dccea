"""docs/use/your_server.md names the servers that are recorded, with their versions and settings."""

import json
import re
from pathlib import Path

import pytest

from scripts.record_servers import SERVERS, fill

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "use" / "your_server.md").read_text()


def row_of(server):
    package = re.split(r"\[|==|(?<=.)@", server.packages[0])[0]
    return server.title, f"`{package}`", server.version, ", ".join(server.settings)


def test_the_table_names_the_recorded_servers_and_versions():
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")[:4]) for line in lines]
    assert sorted(rows) == sorted(row_of(server) for server in SERVERS.values())


@pytest.mark.parametrize("server", SERVERS.values(), ids=lambda server: server.title)
def test_the_section_of_a_server_shows_its_settings(server):
    section = PAGE.partition(f"\n## {server.title}\n")[2].partition("\n## ")[0]
    settings = fill(server.settings["chat"], {"upstream": 8000})
    shown = [value if isinstance(value, str) else json.dumps(value) for value in settings.values()]
    assert "gymweb models create" in section
    assert [one for one in shown if one not in section] == []
