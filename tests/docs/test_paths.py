"""What the documents name exists: files, links, commands, targets, requirements."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from django.core.management import get_commands
from django.urls import is_valid_path

from apps.gym.outcomes import OUTCOMES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLDERS = ("apps", "deploy", "docs", "examples", "gymweb", "scripts", "static", "templates", "tests")
by_name = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def section(title: str) -> str:
    return (ROOT / "docs" / "develop" / "architecture.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def without_plans(document: Path) -> str:
    """The document's text up to the first "Planned" of each line: what comes after it need not exist."""
    return "\n".join(re.split(r"[Pp]lanned", line)[0] for line in document.read_text().splitlines())


@by_name
def test_every_path_named_exists(document: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)`", without_plans(document))
    assert [path for path in named if not (ROOT / path).exists()] == []


@by_name
def test_every_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"(?<!!)\[[^]]*\]\((?!https?://|#)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


@by_name
def test_every_command_named_exists(document: Path) -> None:
    named = re.findall(r"manage\.py (\w+)", without_plans(document))
    assert [command for command in named if command not in get_commands()] == []


def test_every_command_of_ours_is_listed() -> None:
    listed = re.findall(
        r"^\| `manage\.py (\w+)` \|", (ROOT / "docs" / "develop" / "commands.md").read_text(), re.MULTILINE
    )
    ours = [name for name, app in get_commands().items() if str(app).startswith(("apps.", "gymweb"))]
    assert sorted(listed) == sorted(ours)


@by_name
def test_every_page_named_has_an_address(document: Path) -> None:
    pages = re.findall(r"`(/[a-z][a-z0-9/-]*/)`", without_plans(document))
    assert [page for page in pages if not is_valid_path(page)] == []


@by_name
def test_every_address_of_the_api_named_exists(document: Path) -> None:
    paths = re.findall(r"^  (/api/v1/\S*):$", (ROOT / "docs" / "openapi.yaml").read_text(), re.MULTILINE)
    known = {re.sub(r"\{\w+\}", "{}", path.removeprefix("/api/v1/")) for path in paths}
    named = re.findall(r"`(?:[A-Z]+ )?(?:/api/v1/([a-z][^`? ]*)|([a-z-]+/\{[^`? ]*))[^`]*`", without_plans(document))
    shown = {whole or short for whole, short in named}
    assert sorted(one for one in shown if re.sub(r"\{\w+\}|SLUG|\b[A-Z]+\b", "{}", one) not in known) == []


@by_name
def test_every_make_target_named_exists(document: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"(?:`|^|^\w+=\S* )make ([a-z-]+)", document.read_text(), re.MULTILINE)
    assert [target for target in named if target not in targets] == []


@by_name
def test_every_setting_named_exists(document: Path) -> None:
    named = re.findall(r"\bGYMWEB_[A-Z_]+", document.read_text())
    described = (ROOT / "docs" / "operate" / "settings.md").read_text()
    assert [name for name in named if f"| `{name}` |" not in described] == []


def test_every_file_of_the_flow_exists() -> None:
    flow = section("The flow").split("```")[1]
    named = re.findall(r"\b(?:gym|tasks|rollouts|reviews|pairs|exports|dashboard)/(?:\w+/)*(?:\w+\.py)?", flow)
    assert len(named) >= 18
    assert [path for path in named if not (ROOT / "apps" / path).exists()] == []


@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.glob("requirements*.in")))
def test_every_requirement_has_a_reason(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    unexplained = [line for before, line in pairwise(lines) if re.match(r"\w", line) and not before.startswith("# ")]
    assert unexplained == []


def test_every_outcome_is_explained() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", section("How a rollout can end"), re.MULTILINE)
    assert explained == list(OUTCOMES)
