"""Every `gymweb` command that a document shows is one that its parser takes."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from gymweb_client.cli.app import build_app
from typer.main import get_command

from tests.docs.test_commands import DOCUMENTS, ROOT, read_words

APP = get_command(build_app())


def shown_commands(document: Path) -> list[str]:
    """Those in blocks, and those in the text that have arguments."""
    text = document.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [re.search(r"(?:^|\$\(|/bin/)gymweb (.+?)(?:\)$|$)", line) for line in lines]
    inline = re.findall(r"`gymweb (\w[^`]+)`", prose)
    return [match[1] for match in found if match] + inline


def fault_of(shown: str) -> str:
    """What the parser says against it. Documents may leave out what a command requires."""
    command: Any = APP
    words, name = ["1" if word.startswith("$") else word for word in read_words(shown)], "gymweb"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in command.commands:
            return f"{shown}: there is no command {name}"
        command = command.commands[name]
    try:
        command.make_context(name, words or ["--help"] if command is APP else words)
    except Exception as refused:
        return "" if "Missing" in str(refused) or type(refused).__name__ == "Exit" else f"{shown}: {refused!r}"
    return ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_shown_is_one_that_its_parser_takes(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "RECEIVER", "SIGNING_SECRET", "MLFLOW_TOKEN", "HF_TOKEN"):
        monkeypatch.setenv(name, "set")
    monkeypatch.setenv("LITELLM_MASTER_KEY", "set")
    monkeypatch.setenv("RECEIVER_HEADERS", "{}")
    assert [fault for shown in shown_commands(document) if (fault := fault_of(shown))] == []


def test_the_check_finds_commands_and_their_errors() -> None:
    assert sum(len(shown_commands(document)) for document in DOCUMENTS) > 80
    assert "no-such-option" in fault_of("collect --no-such-option")
    assert "no command" in fault_of("collections stop 1")
    assert "at least 1" in fault_of("collections adjust 1 --concurrency 0")
    assert fault_of("collections adjust ID --concurrency 8  # a comment") == ""


def test_the_example_workflow_runs_commands_that_the_parser_takes() -> None:
    text = (ROOT / "examples" / "ci" / "gate.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    lines = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
    shown = [
        re.sub(r"\$\{\{[^}]*\}\}|\"\$\w+\"", "1", match[1].partition(" | ")[0])
        for line in lines
        if (match := re.search(r"(?:^|\$\()gymweb (.+)", line))
    ]
    assert [words.split()[0] for words in shown] == ["collect", "gate"]
    assert [fault for words in shown if (fault := fault_of(words))] == []
