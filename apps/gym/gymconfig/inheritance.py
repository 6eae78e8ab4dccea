"""Inheritance between parts of a configuration: `_inherit_from`, `_copy` and `_delete_key`, and their one-line forms.

`_inherit_from: a.b` takes what stands at `a.b`, merges what stands beside the directive over it, and takes `a.b` away;
`_copy` leaves it. `_delete_key: x, y` leaves those keys out. `${inherit_from:a.b}` and `${copy:a.b}` stand for a value.
"""

from copy import deepcopy
from typing import Any

from apps.gym.gymconfig.config_problems import ConfigRefused, Problem
from apps.gym.gymconfig.merging import Merged, Tree

MISSING = "???"
_MOST_STEPS = 300_000
"""Values that are copied in all: far beyond what any configuration needs."""
_DIRECTIVES = {"_inherit_from": True, "_copy": False}
_SHORT = {"${inherit_from:": True, "${copy:": False}


def resolve_inheritance(merged: Merged) -> None:
    """In place. Raises ConfigRefused for a path that does not exist, and for one that leads back to itself."""
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
            raise self._refuse(key, f"what is inherited stands for more than {_MOST_STEPS:,} values")
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
            raise self._refuse(key, "what is inherited has no keys to be merged with")
        whole = _merge(base, inner)
        for name in left_out:
            if inherits and name not in whole:
                raise self._refuse(f"{key}._delete_key", f"there is no key {name!r} to leave out")
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
