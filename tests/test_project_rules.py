"""Rules of the project that no linter checks: file names, locks, and forbidden parts of templates."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
APPS = sorted(path.parent.name for path in (ROOT / "apps").glob("*/__init__.py"))
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
NAMELESS = {"utils", "util", "helpers", "helper", "common", "core", "services", "service", "managers", "misc", "base"}
MARKED_SAFE: set[str] = set()
"""Files that may mark text as safe, each with a reason beside the code. None needs to."""


def test_no_module_has_a_catch_all_name() -> None:
    paths = [path for folder in ("apps", "gymweb", "scripts") for path in (ROOT / folder).rglob("*")]
    named_by_django = ROOT / "gymweb" / "postgresql" / "base.py"
    assert [str(path) for path in paths if path.stem in NAMELESS and path != named_by_django] == []


def test_every_app_is_in_the_architecture() -> None:
    table = (ROOT / "docs" / "develop" / "architecture.md").read_text().split("## The apps")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == APPS


def test_every_app_is_in_the_import_contract_and_the_settings() -> None:
    layers = (ROOT / "pyproject.toml").read_text().split("layers = [\n")[1].split("]")[0]
    assert sorted(re.findall(r"\w+", layers)) == APPS
    installed = re.findall(r'^    "apps\.(\w+)",$', (ROOT / "gymweb" / "settings.py").read_text(), re.MULTILINE)
    assert sorted([*installed, "gym"]) == APPS


def test_every_app_has_tests_of_its_own() -> None:
    tested = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert [app for app in APPS if app not in tested] == []


@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.glob("requirements*.txt")))
def test_lock_files_pin_exact_versions_without_local_paths(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line.strip()]
    pins = [line for line in lines if not line.lstrip().startswith(("#", "--no-binary "))]
    assert len(pins) > 10
    assert [line for line in pins if not re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?==[\w.!+]+( ; .+)?", line)] == []
    assert [line for line in lines if re.search(r"://|(^|\s)/\w|file:/|--(extra-)?index|--find-links\s", line)] == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_templates_have_no_inline_code_styles_or_foreign_hosts(path: Path) -> None:
    text = path.read_text()
    forbidden = {
        "an inline script": r"<script\b(?![^>]*\b(src=|type=\"application/json\"))",
        "an inline style": r"<style\b|\sstyle\s*=",
        "an inline handler": r"\s(on[a-z]+|hx-on[\w:-]*)\s*=",
        "an address that is code": r"javascript:|hx-vals=[\"']js:|hx-vars",
        "something of another host": r"<(script|link|img|iframe|source)\b[^>]*\b(src|href)=[\"'](https?:)?//",
    }
    assert [name for name, pattern in forbidden.items() if re.search(pattern, text, re.IGNORECASE)] == []


def test_nothing_is_marked_safe() -> None:
    files = [*TEMPLATES, *(ROOT / "apps" / "dashboard").rglob("*.py")]
    pattern = r"\|\s*safe(seq)?\b|\bmark_safe\b|\bSafeString\(|autoescape\s+off|__html__"
    found = {str(path.relative_to(ROOT)) for path in files if re.search(pattern, path.read_text())}
    assert found == MARKED_SAFE


def test_docs_name_no_paths_of_the_authors_machine() -> None:
    files = [ROOT / "README.md", ROOT / "Makefile", ROOT / ".env.example", *(ROOT / "docs").rglob("*.md")]
    found = [
        str(path)
        for path in files
        if path.exists() and re.search(r"(?<![\w.])/(tmp|work|root|home)/", path.read_text())
    ]
    assert found == []


def test_no_cursor_stays_open_while_rows_are_read() -> None:
    """SQLite refuses writes on a connection that still reads: apps/accounts/keyset_reading.py reads many rows."""
    files = [path for folder in ("apps", "gymweb") for path in (ROOT / folder).rglob("*.py")]
    code = {path: path.read_text() for path in files if "migrations" not in path.parts}
    pattern = r"[\w)]\.a?iterator\(|\bchunked_fetch\b|\bchunked_cursor\("
    assert [str(path.relative_to(ROOT)) for path, text in code.items() if re.search(pattern, text)] == []
