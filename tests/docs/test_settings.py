"""docs/operate/settings.md and gymweb/settings.py name the same settings."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_names() -> set[str]:
    """Every name that settings.py, a command, the builder of environments or the client reads from the environment."""
    files = [path for room in ("apps", "gymweb") for path in (ROOT / room).rglob("*.py")]
    files.append(ROOT / "scripts" / "build_environment.py")
    files += (ROOT / "clients" / "python" / "gymweb_client").rglob("*.py")
    pattern = r'(?:\benv(?:\.\w+)?\(|environ\.get\(|environ\[|getenv\()\s*"(GYMWEB_\w+)"'
    return {name for path in files for name in re.findall(pattern, path.read_text())}


def described() -> dict[str, list[str]]:
    lines = (ROOT / "docs" / "operate" / "settings.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `GYMWEB_")]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_every_setting_is_described_and_every_description_has_a_setting() -> None:
    assert sorted(described()) == sorted(read_names())
    assert len(described()) >= 15


def test_every_description_has_a_default_and_a_meaning() -> None:
    assert [name for name, cells in described().items() if len(cells) != 2 or not all(cells)] == []


def test_only_settings_and_commands_read_the_environment() -> None:
    files = [path for room in ("apps", "gymweb") for path in (ROOT / room).rglob("*.py")]
    reading = [path for path in files if re.search(r"\benviron\.(get|Env)\(|\benviron\[|\bgetenv\(", path.read_text())]
    others = [path for path in reading if path.name != "settings.py" and path.parent.name != "commands"]
    assert others == []


def test_the_example_file_names_known_settings_only() -> None:
    named = re.findall(r"^#? ?(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert len(named) >= 5
    assert [name for name in named if name not in read_names()] == []
