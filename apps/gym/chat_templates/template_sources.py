"""Find chat templates: uploaded texts, tokenizer folders, .jinja files, and families that an installed package ships.

Files are only read. No code of a tokenizer folder or package runs.
"""

import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

PACKAGES = {"trl": "chat_templates"}
"""Packages that ship chat templates, with the folder of these."""
MAX_BYTES = 4 * 1024**2
"""Maximum size of a file that is read."""
MAX_TEMPLATE = 512 * 1024
"""Maximum characters of a template."""
UPLOADED = "uploaded template"
_FAMILY = re.compile(r"([a-z]\w*)/([\w.-]+)", re.ASCII)


class TemplateRefused(Exception):
    """Raised if a template cannot be used. The message gives the reason and a remedy."""


class ChatTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A chat template. `tool_text` is the template for conversations with tools, if the tokenizer has two."""

    title: str
    text: str
    tool_text: str = ""
    special_tokens: dict[str, str] = {}

    @property
    def request(self) -> dict[str, str]:
        """Return the options of an order with this template."""
        return {"template": self.text} if self.title == UPLOADED else {"tokenizer": self.title}


def read_template(named: str, text: str, *, allowed: Sequence[str]) -> ChatTemplate:
    """Return the uploaded text, or the template of a path or family. `allowed` are the folders that may be read.

    Raises TemplateRefused.
    """
    if text and named:
        raise TemplateRefused("Give either a template or a tokenizer, not both.")
    if text:
        found = ChatTemplate(title=UPLOADED, text=text)
    else:
        found = _read_path(named, allowed) if Path(named).is_absolute() else _read_family(named)
    if max(len(found.text), len(found.tool_text)) > MAX_TEMPLATE:
        raise TemplateRefused(f"The chat template is longer than {MAX_TEMPLATE:,} characters. Give a shorter one.")
    return found


def _read_family(named: str) -> ChatTemplate:
    family = _FAMILY.fullmatch(named)
    if family is None or family[1] not in PACKAGES:
        packages = ", ".join(PACKAGES)
        raise TemplateRefused(f"{named!r} is no absolute path, and no family PACKAGE/NAME of one of: {packages}.")
    # The search finds the folder of a package without importing it.
    spec = find_spec(family[1])
    if spec is None or not spec.submodule_search_locations:
        raise TemplateRefused(f"{family[1]} is not installed on the server. Upload the .jinja file instead.")
    folder = Path(spec.submodule_search_locations[0]) / PACKAGES[family[1]]
    path = folder / f"{family[2]}.jinja"
    if not path.is_file():
        there = ", ".join(sorted(one.stem for one in folder.glob("*.jinja")))
        raise TemplateRefused(f"{family[1]} has no family {family[2]}. Choose one of: {there}.")
    return ChatTemplate(title=named, text=_read_text(path, [str(folder)]))


def _read_path(named: str, allowed: Sequence[str]) -> ChatTemplate:
    path = Path(named)
    if not _is_allowed(path, allowed) or not path.exists():
        folders = ", ".join(allowed) or "no folder"
        raise TemplateRefused(f"{named!r} does not exist or is not allowed. GYMWEB_TOKENIZERS allows {folders}.")
    if path.is_file():
        return ChatTemplate(title=named, text=_read_text(path, allowed))
    config: Any = {}
    try:
        for name in ("tokenizer_config.json", "chat_template.json"):
            config |= json.loads(_read_text(path / name, allowed)) if (path / name).is_file() else {}
    except (ValueError, TypeError, RecursionError) as error:
        raise TemplateRefused(f"{path / name} is no JSON object: {error}") from error
    texts = config.get("chat_template")
    if (file := path / "chat_template.jinja").is_file():
        named_files = (path / "additional_chat_templates").glob("*.jinja")
        texts = {"default": _read_text(file, allowed), **{one.stem: _read_text(one, allowed) for one in named_files}}
    if isinstance(texts, list):
        texts = {one.get("name"): one.get("template") for one in texts if isinstance(one, dict)}
    if not isinstance(texts, dict):
        texts = {"default": texts}
    tokens = {name: value for name, value in config.items() if name.endswith("_token")}
    tokens = {name: value.get("content") if isinstance(value, dict) else value for name, value in tokens.items()}
    given = {
        "title": named,
        "text": texts.get("default"),
        "tool_text": texts.get("tool_use") or "",
        "special_tokens": {name: value for name, value in tokens.items() if isinstance(value, str)},
    }
    try:
        return msgspec.convert(given, ChatTemplate)
    except msgspec.ValidationError as error:
        raise TemplateRefused(f"{named} has no chat template. Give a folder with one, or a .jinja file.") from error


def _is_allowed(path: Path, allowed: Sequence[str]) -> bool:
    return any(path.resolve().is_relative_to(Path(folder).resolve()) for folder in allowed)


def _read_text(path: Path, allowed: Sequence[str]) -> str:
    # A link in an allowed folder may lead out of it.
    if not _is_allowed(path, allowed):
        raise TemplateRefused(f"{path} leads out of the folders in GYMWEB_TOKENIZERS.")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise TemplateRefused(f"{path} is larger than {MAX_BYTES:,} bytes.")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateRefused(f"{path} cannot be read as text: {error}") from error
