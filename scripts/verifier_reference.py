#!/usr/bin/env python
"""Compare docs/use/verifier_reference.md with the docstrings and parameters of the verifiers; `--write` writes it."""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from apps.gym.verifiers.parameters_reader import parameters_schema  # noqa: E402
from apps.gym.verifiers.registry import VERIFIERS  # noqa: E402
from scripts.generated_files import keep_current  # noqa: E402
from tests.gym.verifiers.pairs import read_pairs  # noqa: E402

PAGE = ROOT / "docs" / "use" / "verifier_reference.md"
INTRODUCTION = """\
# Verifier reference

The verifiers with their parameters. [Verifiers](verifiers.md) explains how to choose and combine them.
`scripts/verifier_reference.py` writes this page from the code, and the tables of answers from the pairs that the tests
check.
"""
HEAD = "| parameter | label | type | default | meaning |\n|---|---|---|---|---|\n"
NAMES = {
    "string": "string",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
}


def render() -> str:
    """Return the whole page."""
    return INTRODUCTION + "".join(_section(kind) for kind in VERIFIERS)


def _section(kind: str) -> str:
    verifier = VERIFIERS[kind]
    schema = parameters_schema(verifier)
    rows = [
        f"| `{name}`{' (required)' * (name in schema['required'])} | {_text(one, 'title')} | {_type(one)} "
        f"| {_default(one)} | {_text(one, 'description')} |"
        for name, one in schema["properties"].items()
        if name != "type"
    ]
    table = f"\n{HEAD}" + "\n".join(rows) + "\n" if rows else ""
    return f"\n## {verifier.title}: `{kind}`\n\n{inspect.getdoc(verifier)}\n{table}{_answers(kind)}"


def _answers(kind: str) -> str:
    """Return a table of the answers that the tests mark to be shown."""
    shown = [pair for pair in read_pairs(kind) if pair.shown]
    rows = [
        f"| {_code(pair.expected)} | {_code(pair.answer)} | {pair.reward:g} | {pair.convention} |" for pair in shown
    ]
    head = "\n| expected | answer | reward | convention |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n" if rows else ""


def _code(text: str) -> str:
    return f"`{' '.join(text.split())}`".replace("|", "\\|")


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if schema["type"] == "array":
        return f"list of {NAMES[schema['items']['type']]}s"
    return NAMES[schema["type"]] + _range(schema)


def _range(schema: dict[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None:
        return ""
    return f", at least {least}" if most is None or most >= 2**31 - 1 else f", {least} to {most}"


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"


def _text(schema: dict[str, Any], name: str) -> str:
    text: str = schema.get(name, "")
    return text.rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
    keep_current(PAGE, render, about=__doc__, remedy=f"{Path(__file__).name} --write")
