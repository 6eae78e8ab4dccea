"""Merge texts: a text overrides those that it includes, and a later text overrides an earlier one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apps.gym.gymconfig.config_problems import ConfigRefused, Problem
from apps.gym.gymconfig.yaml_reader import NotYaml, read_yaml

INCLUDES = "config_paths"

Tree = dict[str, Any]


class Merged:
    """One tree of all files. `origins` says of each dotted key which file gave it its value last."""

    def __init__(self) -> None:
        self.tree: Tree = {}
        self.origins: dict[str, str] = {}

    def add(self, tree: Tree, file: str) -> None:
        self._add(self.tree, tree, file, "")

    def _add(self, into: Tree, tree: Tree, file: str, prefix: str) -> None:
        for key, value in tree.items():
            path = f"{prefix}.{key}" if prefix else key
            self.origins[path] = file
            known = into.get(key)
            if isinstance(known, dict) and isinstance(value, dict):
                self._add(known, value, file, path)
            else:
                into[key] = {} if isinstance(value, dict) else value
                if isinstance(value, dict):
                    self._add(into[key], value, file, path)

    def file_of(self, key: str) -> str:
        """The file that gave this key, or the nearest one above it, its value."""
        while key and key not in self.origins:
            key = key.rpartition(".")[0]
        return self.origins.get(key, "")


def merge_texts(texts: Mapping[str, str]) -> Merged:
    """Merge texts by name. What a text includes must be among them. Raises ConfigRefused."""
    merged = Merged()
    seen: set[str] = set()
    for name in texts:
        _add_text(merged, name, texts, seen)
    merged.tree.pop(INCLUDES, None)
    return merged


def _add_text(merged: Merged, name: str, texts: Mapping[str, str], seen: set[str]) -> None:
    if name in seen:
        return
    seen.add(name)
    tree = _parse(name, texts[name])
    for one in _included(tree, name):
        found = next((other for other in texts if one == other or one.endswith(f"/{other}")), None)
        if found is None:
            told = f"{one} is not among what was given: add it below a line `--- # {Path(one).name}`"
            raise ConfigRefused(Problem(name, INCLUDES, told))
        _add_text(merged, found, texts, seen)
    merged.add(tree, name)


def _included(tree: Tree, file: str) -> list[str]:
    included = tree.get(INCLUDES) or []
    if not isinstance(included, list) or not all(isinstance(one, str) for one in included):
        raise ConfigRefused(Problem(file, INCLUDES, "must be a list of paths"))
    return included


def _parse(name: str, text: str) -> Tree:
    try:
        tree = read_yaml(text)
    except NotYaml as error:
        raise ConfigRefused(Problem(name, "", str(error))) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigRefused(Problem(name, "", "holds no keys at its top"))
    return {str(key): _with_text_keys(value) for key, value in tree.items()}


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(inner) for key, inner in value.items()}
    return [_with_text_keys(inner) for inner in value] if isinstance(value, list) else value
