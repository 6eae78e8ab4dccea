"""Values of a configuration. References are resolved when they are asked for: `${a.b}`, `${oc.env:NAME,default}`, …

What nobody asks for may stay unresolved: a configuration is full of keys that only its own servers read.
"""

import re
from typing import Any

from apps.gym.gymconfig.config_problems import ConfigRefused, Problem
from apps.gym.gymconfig.inheritance import MISSING
from apps.gym.gymconfig.merging import Merged
from apps.gym.gymconfig.unsupported_values import look_at
from apps.gym.gymconfig.yaml_reader import NotYaml, read_yaml

_MAX_DEPTH = 20
_MOST_STEPS = 300_000
"""Values and references that are looked at for one configuration: far beyond what any needs."""
_LONGEST = 1024 * 1024
_INNERMOST = re.compile(r"\$\{([^${}]*)\}")


class Absent(Exception):
    """There is no such key."""


class Values:
    def __init__(self, merged: Merged) -> None:
        self._merged = merged
        self._steps = 0

    @property
    def names(self) -> list[str]:
        return list(self._merged.tree)

    def raw(self, key: str) -> Any:
        """As it stands in the files. Raises Absent."""
        value: Any = self._merged.tree
        for name in key.split("."):
            if not isinstance(value, dict) or name not in value:
                raise Absent(key)
            value = value[name]
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """The value, resolved; `default` where there is none or null. Raises ConfigRefused."""
        try:
            value = self.raw(key)
        except Absent:
            return default
        try:
            found = self._resolve(value, key, 0)
        except RecursionError:
            raise self.refuse(key, "is nested too deep") from None
        return default if found is None else found

    def text(self, key: str, default: str = "") -> str:
        """A text or a number, as text."""
        value = self.get(key, default)
        if isinstance(value, dict | list | bool):
            raise self.refuse(key, f"must be a text, not {_kind(value)}")
        return str(value)

    def whole(self, key: str, default: int) -> int:
        value = self.get(key, default)
        if isinstance(value, str) and value.strip().isdigit():
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(key, f"must be a whole number, not {_kind(value)}")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.get(key, {})
        if not isinstance(value, dict):
            raise self.refuse(key, f"must have keys, not be {_kind(value)}")
        return value

    def rows(self, key: str) -> list[Any]:
        value = self.get(key, [])
        if not isinstance(value, list):
            raise self.refuse(key, f"must be a list, not {_kind(value)}")
        return value

    def refuse(self, key: str, message: str) -> ConfigRefused:
        return ConfigRefused(Problem(self._merged.file_of(key), key, message))

    def file_of(self, key: str) -> str:
        return self._merged.file_of(key)

    def _resolve(self, value: Any, key: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise self.refuse(key, "its references lead in a circle")
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise self.refuse(key, f"the references stand for more than {_MOST_STEPS:,} values")
        if isinstance(value, dict):
            return {name: self._resolve(inner, f"{key}.{name}", depth) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._resolve(inner, f"{key}[{place}]", depth) for place, inner in enumerate(value)]
        if not isinstance(value, str):
            return value
        if value == MISSING:
            raise self.refuse(key, "is required and not set (???): set it in a file, or on the command line")
        return self._interpolate(value, key, depth)

    def _interpolate(self, text: str, key: str, depth: int) -> Any:
        """A text that is one reference becomes the value itself; others become text, from the innermost out."""
        for _ in range(_MAX_DEPTH):
            found = _INNERMOST.search(text)
            if found is None:
                return text
            value = self._reference(found[1].strip(), key, depth)
            if found[0] == text:
                return value
            if isinstance(value, dict | list):
                raise self.refuse(key, f"{found[0]} is {_kind(value)}, which cannot stand inside a text")
            text = text[: found.start()] + ("" if value is None else str(value)) + text[found.end() :]
            if len(text) > _LONGEST:
                raise self.refuse(key, f"becomes longer than {_LONGEST:,} characters")
        raise self.refuse(key, "has too many references")

    def _reference(self, name: str, key: str, depth: int) -> Any:
        resolver, colon, argument = name.partition(":")
        if colon:
            if resolver == "oc.select":
                return self._select(argument, key, depth)
            if resolver != "oc.env":
                raise self.refuse(key, f"${{{resolver}:…}} is not understood: only oc.env and oc.select are")
            return self._environment_default(argument, key)
        path = _absolute(name, key)
        try:
            value = self.raw(path)
        except Absent:
            told = f"refers to {path}, which is not set: set it in a file, or on the command line"
            raise self.refuse(key, told) from None
        return self._resolve(value, path, depth + 1)

    def _select(self, argument: str, key: str, depth: int) -> Any:
        """`a.b, default`: what stands there, if anything does."""
        name, _, default = argument.partition(",")
        path = _absolute(name.strip(), key)
        try:
            value = self.raw(path)
        except Absent:
            value = None
        if value is None or value == MISSING:
            return self._default(default.strip() or "null", key)
        return self._resolve(value, path, depth + 1)

    def _environment_default(self, argument: str, key: str) -> Any:
        """Return the default of `NAME, default`: no environment variable of this machine is given out."""
        name, comma, default = argument.partition(",")
        if not comma:
            raise self.refuse(key, f"reads {name.strip()} from the environment, which is not set there")
        return self._default(default.strip() or "''", key)

    def _default(self, text: str, key: str) -> Any:
        try:
            found = read_yaml(text)
        except NotYaml as error:
            raise self.refuse(key, f"its default {error}") from None
        for _, told in look_at(key, found):
            raise self.refuse(key, f"its default {told}")
        return found


def _absolute(name: str, key: str) -> str:
    """One dot before a name means the node that the key stands in, each further one the node above."""
    bare = name.lstrip(".")
    dots = len(name) - len(bare)
    if not dots:
        return bare
    above = re.sub(r"\[\d+\]", "", key).split(".")[:-dots]
    return ".".join([*above, bare])


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "a yes or no", int: "a number", float: "a number"}
    return names.get(type(value), "nothing")
