"""Read configuration files with all files that they include, as NeMo Gym finds them."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from apps.gym.gymconfig.descriptions import AGENTS, ENVIRONMENT_SERVERS, MODELS, SERVERS
from apps.gym.gymconfig.merging import INCLUDES, ConfigRefused, NotYaml, Problem, read_yaml

KINDS = (SERVERS, AGENTS, MODELS, ENVIRONMENT_SERVERS)
"""Kinds of servers, which are also the folders of their code."""
_SECRETS = "env.yaml"


def list_roots(files: Iterable[Path], *, extra: str = "", installed: Path | None = None) -> list[Path]:
    """Return the folders in which paths and servers are looked up.

    They are those of `extra`, the working directory, the checkouts that contain the files, and `installed`, the
    packages of a Python with NeMo Gym.
    """
    given = [Path(one) for one in extra.split(os.pathsep) if one]
    above = [
        folder for file in files for folder in file.absolute().parents if any((folder / k).is_dir() for k in KINDS)
    ]
    roots = [*given, Path.cwd(), *above, *([installed] if installed else [])]
    return list(dict.fromkeys(root.resolve() for root in roots))


def find_below(roots: Sequence[Path], path: str | Path) -> Path | None:
    return next((root / path for root in roots if (root / path).exists()), None)


def read_files(files: Iterable[str], settings: Iterable[str], roots: Sequence[Path]) -> dict[str, str]:
    """Return the texts by path: the files, what they include, env.yaml, then the settings. Later texts override."""
    texts: dict[str, str] = {}
    for file in files:
        _read(file, "", roots, texts)
    if secrets := find_below(roots, _SECRETS):
        tree = _parse(str(secrets), secrets.read_text(encoding="utf-8"))
        texts[str(secrets)] = yaml.safe_dump({key: value for key, value in tree.items() if key != INCLUDES})
    for number, setting in enumerate(settings, 1):
        texts[f"--set {number}"] = _setting_text(setting)
    return texts


def _read(file: str, named_in: str, roots: Sequence[Path], texts: dict[str, str]) -> None:
    path = find_below(roots, file)
    if path is None:
        told = f"{file} was not found in {', '.join(map(str, roots))}"
        raise ConfigRefused(Problem(named_in or file, INCLUDES if named_in else "", told))
    if str(path) in texts:
        return
    texts[str(path)] = path.read_text(encoding="utf-8")
    for one in _included(_parse(str(path), texts[str(path)])):
        _read(one, str(path), roots, texts)


def _included(tree: dict[str, Any]) -> Iterator[str]:
    """Yield the included paths. Merging refuses values that are no lists of paths."""
    included = tree.get(INCLUDES)
    yield from (one for one in (included if isinstance(included, list) else []) if isinstance(one, str))


def _parse(name: str, text: str) -> dict[str, Any]:
    try:
        tree = read_yaml(text)
    except NotYaml as wrong:
        raise ConfigRefused(Problem(name, "", str(wrong))) from None
    return tree if isinstance(tree, dict) else {}


def _setting_text(setting: str) -> str:
    key, equals, value = setting.partition("=")
    if not equals:
        raise ConfigRefused(Problem(f"--set {setting}", "", "give KEY=VALUE"))
    for part in reversed(key.lstrip("+").split(".")):
        value = f"{{{json.dumps(part)}: {value}}}"
    return value
