"""Every `manage.py` command that a document shows is one that its parser takes."""

import re
import shlex
from pathlib import Path

import pytest
from django.core.management import CommandError, get_commands, load_command_class

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
SHELL = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


def shown_commands(document: Path) -> list[str]:
    """Those in blocks, with their continued lines, then those in the text that have arguments."""
    text = document.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = [code for code in re.findall(r"`([^`]+)`", prose) if re.search(r"manage\.py \w+ \S", code)]
    return [line.split("manage.py ", 1)[1] for line in [*lines, *inline] if "manage.py " in line]


def read_words(command: str) -> list[str]:
    """The words of one command, with values in place of names such as ID and without what the shell does with it."""
    lexer = shlex.shlex(command.replace("…", ""), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if word in SHELL:
            break
        words.append("1" if word in {"ID", "N"} else word)
    return words


def fault_of(command: str) -> str:
    """What the parser says against it. Documents may leave out what a command requires."""
    name, *words = read_words(command)
    app = get_commands()[name]
    loaded = load_command_class(app, name) if isinstance(app, str) else app
    try:
        loaded.create_parser("manage.py", name).parse_args(words)
    except CommandError as refused:
        return "" if "required" in str(refused) else f"{command}: {refused}"
    except SystemExit as ended:
        return f"{command}: exits with {ended.code}"
    return ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_shown_is_one_that_its_parser_takes(document: Path) -> None:
    assert [fault for command in shown_commands(document) if (fault := fault_of(command))] == []


def test_the_check_finds_commands_and_their_errors() -> None:
    assert sum(len(shown_commands(document)) for document in DOCUMENTS) > 30
    assert "unrecognized arguments" in fault_of("vllm_serve MODEL_DIR -- --seed 3")
    assert fault_of('vllm_serve MODEL_DIR --arguments="--seed 3"  # a comment') == ""
