"""Find a JSON schema that refers to itself before it has looked at any part of a value: it can never be answered."""

from collections.abc import Iterator
from typing import Any

_ONE = ("not", "if", "then", "else")
_SEVERAL = ("allOf", "anyOf", "oneOf")
_VALUES = frozenset({"const", "enum", "default", "examples"})


def find_endless(schema: dict[str, Any]) -> str:
    """A reference that leads back to where it stands, or nothing. Only `#` and `#/…` are followed.

    A walk in depth without recursion: schemas come from task rows.
    """
    done: set[int] = set()
    for start in _subschemas(schema):
        if id(start) in done:
            continue
        on_path = {id(start)}
        path = [(start, _applied(schema, start))]
        while path:
            place, applied = path[-1]
            reference, following = next(applied, ("", None))
            if following is None:
                path.pop()
                on_path.discard(id(place))
                done.add(id(place))
            elif id(following) in on_path:
                return reference
            elif id(following) not in done:
                on_path.add(id(following))
                path.append((following, _applied(schema, following)))
    return ""


def _applied(whole: dict[str, Any], place: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas that the same value must be held to, with the reference that the last of them was found by."""
    reference = place.get("$ref")
    if isinstance(reference, str) and isinstance(found := _resolve(whole, reference), dict):
        yield reference, found
    dependent = place.get("dependentSchemas")
    named = [place.get(key) for key in _ONE] + (list(dependent.values()) if isinstance(dependent, dict) else [])
    for key in _SEVERAL:
        several = place.get(key)
        named += several if isinstance(several, list) else []
    yield from (("$ref", one) for one in named if isinstance(one, dict))


def _resolve(whole: Any, reference: str) -> Any:
    if reference != "#" and not reference.startswith("#/"):
        return None
    found = whole
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < 7 and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict):
            found = found.get(name)
        else:
            return None
    return found


def _subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    left: list[Any] = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield one
            left.extend(value for key, value in one.items() if key not in _VALUES)
        elif isinstance(one, list):
            left.extend(one)
