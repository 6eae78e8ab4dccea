"""Read and merge documents. A document overrides those that it includes; later documents override earlier ones."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from apps.gym.request_refusals import Refusal


class Problem(NamedTuple):
    """A problem of a configuration. `key` is the dotted path, or empty for the whole file."""

    file: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


class ConfigRefused(Refusal, code="config-refused"):
    """Raised if the configuration cannot be used, with all problems."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = list(problems)

    @property
    def members(self) -> dict[str, Any]:
        return {"errors": [{"code": "refused", **problem._asdict()} for problem in self.problems]}


_MOST_BYTES = 4 * 1024 * 1024
_MOST_NODES = 200_000
_MOST_LEVELS = 64


class NotYaml(Exception):
    """Raised if the text is not YAML or exceeds the limits."""


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text. Raises NotYaml."""
    if len(text) > _MOST_BYTES:
        raise NotYaml(f"is larger than {_MOST_BYTES:,} characters")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            return None
        # Check before building values: an alias takes a few bytes, but its value may contain more aliases.
        if _measure(node, {}, 0) > _MOST_NODES:
            raise NotYaml(f"expands to more than {_MOST_NODES:,} values through aliases")
        return yaml.SafeLoader("").construct_document(node)
    except (yaml.YAMLError, ValueError) as error:
        raise NotYaml(f"is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise NotYaml(f"is nested more than {_MOST_LEVELS} deep") from None


def _measure(node: yaml.Node, known: dict[int, int], level: int) -> int:
    """Return the number of values after expanding aliases."""
    if level > _MOST_LEVELS:
        # Also stops an alias that contains itself.
        raise RecursionError
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        inner = [each for pair in node.value for each in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + sum(_measure(each, known, level + 1) for each in inner)
    return known[id(node)]


INCLUDES = "config_paths"

Tree = dict[str, Any]


class Merged:
    """One tree of all files. `origins` maps each dotted key to the file that set its value last."""

    def __init__(self) -> None:
        self.tree: Tree = {}
        self.origins: dict[str, str] = {}

    def add(self, tree: Tree, file: str) -> None:
        self._add(self.tree, tree, file, "")

    def _add(self, into: Tree, tree: Tree, file: str, prefix: str) -> None:
        for key, value in tree.items():
            path = f"{prefix}.{key}" if prefix else key
            self.origins[path] = file
            if not isinstance(value, dict):
                into[key] = value
                continue
            if not isinstance(into.get(key), dict):
                into[key] = {}
            self._add(into[key], value, file, path)

    def file_of(self, key: str) -> str:
        """Return the file that set this key, or the nearest parent key."""
        while key and key not in self.origins:
            key = key.rpartition(".")[0]
        return self.origins.get(key, "")


def merge_texts(texts: Mapping[str, str]) -> Merged:
    """Merge texts by name. Included texts must be among them. Raises ConfigRefused."""
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
        alike = [other for other in texts if f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")]
        # A file that includes one of the same name does not include itself.
        found = max(
            (other for other in alike if other != name), key=lambda other: (other == one, len(other)), default=""
        )
        if not found:
            told = f"{one} was not given. Add it below a line `--- # {Path(one).name}`"
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
        raise ConfigRefused(Problem(name, "", "has no top-level keys"))
    return {str(key): _with_text_keys(value) for key, value in tree.items()}


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(inner) for key, inner in value.items()}
    return [_with_text_keys(inner) for inner in value] if isinstance(value, list) else value


MISSING = "???"
_MOST_STEPS = 300_000
"""Maximum number of values copied, far beyond the needs of any configuration."""
_DIRECTIVES = {"_inherit_from": True, "_copy": False}
_SHORT = {"${inherit_from:": True, "${copy:": False}


def resolve_inheritance(merged: Merged) -> None:
    """Resolve inheritance in place. Raises ConfigRefused for a missing path or a cycle."""
    resolver = _Resolver(merged)
    for key in list(merged.tree):
        merged.tree[key] = resolver.resolve(merged.tree[key], key, ())
    for path in resolver.moved:
        _remove(merged.tree, path)


class _Resolver:
    def __init__(self, merged: Merged) -> None:
        self._merged = merged
        self._frozen = deepcopy(merged.tree)
        self.moved: set[str] = set()
        self._steps = 0

    def resolve(self, value: Any, key: str, chain: tuple[str, ...]) -> Any:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise self._refuse(key, f"the inheritance expands to more than {_MOST_STEPS:,} values")
        if isinstance(value, list):
            return [self.resolve(inner, f"{key}[{place}]", chain) for place, inner in enumerate(value)]
        if isinstance(value, str):
            for start, moves in _SHORT.items():
                if value.startswith(start) and value.endswith("}"):
                    return self._fetch(value[len(start) : -1].strip(), key, chain, moves=moves)
            return value
        return self._resolve_tree(value, key, chain) if isinstance(value, dict) else value

    def _resolve_tree(self, tree: Tree, key: str, chain: tuple[str, ...]) -> Any:
        own = dict(tree)
        left_out = [name.strip() for name in str(own.pop("_delete_key", "")).split(",") if name.strip()]
        base: Any = {}
        inherits = any(directive in own for directive in _DIRECTIVES)
        for directive, moves in _DIRECTIVES.items():
            path = own.pop(directive, None)
            if path is not None:
                base = self._fetch(str(path).strip(), f"{key}.{directive}", chain, moves=moves)
        inner = {name: self.resolve(value, f"{key}.{name}", chain) for name, value in own.items()}
        if base == MISSING:
            return MISSING
        if not isinstance(base, dict):
            raise self._refuse(key, "the inherited value has no keys to merge with")
        whole = _merge(base, inner)
        for name in left_out:
            if inherits and name not in whole:
                raise self._refuse(f"{key}._delete_key", f"there is no key {name!r} to remove")
            whole.pop(name, None)
        return whole

    def _fetch(self, path: str, key: str, chain: tuple[str, ...], *, moves: bool) -> Any:
        if path in chain:
            raise self._refuse(key, f"inherits from itself: {' → '.join([*chain, path])}")
        value: Any = self._frozen
        for name in path.split("."):
            if value == MISSING:
                return MISSING
            if not isinstance(value, dict) or name not in value:
                raise self._refuse(key, f"there is no {path!r} to inherit from")
            value = value[name]
        if moves:
            self.moved.add(path)
        return self.resolve(deepcopy(value), path, (*chain, path))

    def _refuse(self, key: str, message: str) -> ConfigRefused:
        return ConfigRefused(Problem(self._merged.file_of(key), key, message))


def _merge(base: Tree, over: Tree) -> Tree:
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        merged[key] = _merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _remove(tree: Tree, path: str) -> None:
    *parents, last = path.split(".")
    for name in parents:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            return
        tree = inner
    tree.pop(last, None)
