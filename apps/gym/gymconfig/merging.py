"""Read files with what they include, and merge them: a file overrides what it pulled in, a later one the earlier."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apps.gym.gymconfig.config_problems import ConfigRefused, Problem
from apps.gym.gymconfig.yaml_reader import NotYaml, read_yaml

INCLUDES = "config_paths"
_MAX_FILES = 200

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


def merge_files(files: Sequence[Path], *, roots: Sequence[Path]) -> Merged:
    """Included paths are looked for in `roots`, then beside and above the file that names them.

    Raises ConfigRefused.
    """
    merged = Merged()
    seen: set[Path] = set()
    for file in files:
        _add_file(merged, file, roots, seen)
    merged.tree.pop(INCLUDES, None)
    return merged


def _add_file(merged: Merged, file: Path, roots: Sequence[Path], seen: set[Path]) -> None:
    place = file.resolve()
    if place in seen:
        return
    if len(seen) >= _MAX_FILES:
        raise ConfigRefused(Problem(str(file), INCLUDES, f"more than {_MAX_FILES} files include each other"))
    seen.add(place)
    tree = _read(file)
    for one in _included(tree, str(file)):
        found = find_file(one, roots=roots, beside=file)
        if found is None:
            raise ConfigRefused(Problem(str(file), INCLUDES, f"{one} was not found from here; name its root"))
        _add_file(merged, found, roots, seen)
    merged.add(tree, str(file))


def merge_texts(texts: Mapping[str, str]) -> Merged:
    """The same for texts by their names. What one includes must be among them: no file is read.

    Raises ConfigRefused.
    """
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


def find_file(name: str, *, roots: Sequence[Path], beside: Path) -> Path | None:
    """A path in a configuration is relative to the root of its repository, which is a folder above it."""
    wanted = Path(name)
    if wanted.is_absolute():
        return wanted if wanted.is_file() else None
    places = [*roots, *beside.resolve().parents]
    return next((place / wanted for place in places if (place / wanted).is_file()), None)


def _read(file: Path) -> Tree:
    try:
        text = file.read_text()
    except OSError as error:
        raise ConfigRefused(Problem(str(file), "", f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError as error:
        raise ConfigRefused(Problem(str(file), "", f"is not YAML: {error}")) from None
    return _parse(str(file), text)


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
