"""The docs site builds without warnings, needs no other host, and fails on broken links."""

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

CONFIG = Path(__file__).resolve().parents[2] / "mkdocs.yml"


@pytest.mark.slow
def test_the_site_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    build(load_config(str(CONFIG), site_dir=str(tmp_path), strict=True))
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 60
    loaded = r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"https?:[^\"]*|<link\b[^>]*\bhref=\"https?:[^\"]*"
    assert [found for page in pages for found in re.findall(loaded, page.read_text())] == []
    styles = "".join(path.read_text() for path in tmp_path.rglob("*.css"))
    assert re.findall(r"@import[^;]*|url\(['\"]?https?:[^)]*", styles) == []


@pytest.mark.parametrize("link", ["missing.md", "#missing", "/index.html"])
def test_a_broken_link_fails_the_build(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n[link]({link})\n")
    given = {"docs_dir": str(tmp_path / "docs"), "site_dir": str(tmp_path / "site"), "nav": [{"Home": "index.md"}]}
    with pytest.raises(Abort):
        build(load_config(str(CONFIG), strict=True, **given))
