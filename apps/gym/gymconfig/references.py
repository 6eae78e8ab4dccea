"""Values of a configuration.

References are resolved on access: `${a.b}`, `${oc.env:NAME,default}`, …

Unused references may stay unresolved: configurations have many keys that only other servers read.
"""

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from apps.gym.gymconfig.merging import MISSING, ConfigRefused, Merged, NotYaml, Problem, read_yaml
from apps.gym.storable import find_unstorable

_MOST_PROBLEMS = 50
_LARGEST = 2**63


def find_unusable(merged: Merged) -> list[Problem]:
    """Return the first unusable keys and values."""
    return [Problem(merged.file_of(key), key, told) for key, told in islice(_look(merged.tree), _MOST_PROBLEMS)]


def _look(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if "." in name:
            yield _plain(name), "has a dot in its name, which means a nested key"
        yield from look_at(name, value)


def look_at(place: str, given: Any) -> Iterator[tuple[str, str]]:
    """Yield the keys inside a value that cannot be stored, each with its problem."""
    waiting: deque[tuple[str, Any]] = deque([(place, given)])
    while waiting:
        key, value = waiting.popleft()
        if isinstance(value, dict):
            waiting += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{key}[{place}]", inner) for place, inner in enumerate(value)]
        if find_unstorable(key) is not None:
            yield _plain(key), "has a NUL character or an unpaired surrogate in its name"
        elif isinstance(value, str) and find_unstorable(value) is not None:
            yield key, "contains a NUL character or an unpaired surrogate"
        elif isinstance(value, float) and not math.isfinite(value):
            yield key, "is not a finite number"
        elif isinstance(value, int) and abs(value) >= _LARGEST:
            yield key, "is a number of more than 64 bits"


def _plain(name: str) -> str:
    return name.encode(errors="replace").decode().replace("\0", "�")


_MAX_DEPTH = 20
_MOST_STEPS = 300_000
"""Maximum values and references read for one configuration, far beyond the needs of any."""
_LONGEST = 1024 * 1024
ABSENT: Any = object()
_INNERMOST = re.compile(r"\$\{([^${}]*)\}")


class Values:
    def __init__(self, merged: Merged, environment: Mapping[str, str]) -> None:
        self._merged = merged
        self._environment = environment
        self._steps = 0

    @property
    def names(self) -> list[str]:
        return list(self._merged.tree)

    def raw(self, key: str) -> Any:
        """Return the value as in the files, or ABSENT without the key."""
        value: Any = self._merged.tree
        for name in key.split("."):
            if not isinstance(value, dict) or name not in value:
                return ABSENT
            value = value[name]
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """Return the resolved value, or `default` if it is missing or null. Raises ConfigRefused."""
        value = self.raw(key)
        if value is ABSENT:
            return default
        try:
            found = self._resolve(value, key, 0)
        except RecursionError:
            raise self.refuse(key, "is nested too deep") from None
        return default if found is None else found

    def text(self, key: str, default: str = "") -> str:
        """Return a text or a number as text."""
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
            raise self.refuse(key, "its references are circular")
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise self.refuse(key, f"the references expand to more than {_MOST_STEPS:,} values")
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
        """Resolve references, innermost first. A text that is a single reference becomes the value itself."""
        for _ in range(_MAX_DEPTH):
            found = _INNERMOST.search(text)
            if found is None:
                return text
            value = self._reference(found[1].strip(), key, depth)
            if found[0] == text:
                return value
            if isinstance(value, dict | list):
                raise self.refuse(key, f"{found[0]} is {_kind(value)}, which cannot be inserted into text")
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
                raise self.refuse(key, f"${{{resolver}:…}} is not supported. Use oc.env or oc.select")
            return self._environment_default(argument, key)
        path = _absolute(name, key)
        value = self.raw(path)
        if value is ABSENT:
            told = f"refers to {path}, which is not set: set it in a file, or on the command line"
            raise self.refuse(key, told)
        return self._resolve(value, path, depth + 1)

    def _select(self, argument: str, key: str, depth: int) -> Any:
        """Return the value of `a.b, default`: the value at a.b, else the default."""
        name, _, default = argument.partition(",")
        path = _absolute(name.strip(), key)
        value = self.raw(path)
        if value in (ABSENT, None, MISSING):
            return self._default(default.strip() or "null", key)
        return self._resolve(value, path, depth + 1)

    def _environment_default(self, argument: str, key: str) -> Any:
        """Return the variable of `NAME, default`, else the default. Only the variables given to this class are read."""
        name, comma, default = argument.partition(",")
        if (known := self._environment.get(name.strip())) is not None:
            return known
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
    """Return the absolute path. One leading dot means the node of the key, each further dot its parent."""
    bare = name.lstrip(".")
    dots = len(name) - len(bare)
    if not dots:
        return bare
    above = re.sub(r"\[\d+\]", "", key).split(".")[:-dots]
    return ".".join([*above, bare])


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "a yes or no", int: "a number", float: "a number"}
    return names.get(type(value), "nothing")
