"""Code blocks of the documents are valid in their language."""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docs.test_commands import DOCUMENTS, ROOT

PAGES = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
UNCHECKED = {"http", "ini", "js", "nginx", "text"}
"""Languages without a parser here. tests/docs/test_deploy.py reads the units and the proxy."""
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def find_fault(language: str, code: str) -> str:
    """Return why the code is not valid, or an empty text."""
    try:
        if language == "json":
            json.loads(code)
        elif language == "jsonl":
            [json.loads(line) for line in code.splitlines()]
        elif language == "yaml":
            yaml.safe_load(code)
        elif language == "python":
            compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
        elif language == "sh":
            return subprocess.run(["bash", "-n"], input=code, text=True, capture_output=True, check=False).stderr
        elif language not in UNCHECKED:
            return f"no language, or an unknown one: {language!r}"
    except (ValueError, SyntaxError, yaml.YAMLError) as refused:
        return repr(refused)
    return ""


@by_page
def test_every_code_block_is_valid(page: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert [fault for language, code in blocks if (fault := find_fault(language, code))] == []


def test_the_check_finds_faults() -> None:
    wrong = {
        "json": "{'a': 1}",
        "jsonl": '{"a": 1}\n{"a"',
        "yaml": "a: [",
        "python": "def f(:",
        "sh": "if true",
        "": "",
    }
    assert [language for language, code in wrong.items() if not find_fault(language, code)] == []
    assert find_fault("python", "async with a as b:\n    await c\n") == ""
