"""Unique markers for the texts, keys and numbers of JSON values and tools."""

import json
from functools import lru_cache
from typing import Any

import orjson

SHORTEST, SHORTEST_ARGUMENT = 2_048, 256
"""Characters of shorter texts and of shorter arguments while they are checked."""
_FILLER = "and these are the words of a text that goes on "


class Marker:
    """Makes markers, numbered from `count` on."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.has_numbers = False

    def next(self) -> str:
        self.count += 1
        return f"q{self.count:05d}z"

    def marked(self, markers: list[str]) -> str:
        markers.append(self.next())
        return markers[-1]

    def filled(self, markers: list[str], length: int, shortest: int) -> str:
        """Return a text that is at least as long, with markers at its start, in its middle and at its end."""
        filler = _fill(max(1 << length.bit_length(), shortest) // 3)
        return filler.join([self.marked(markers) for _ in range(4)])

    def value(self, value: Any, markers: list[str], fixed: dict[str, list[str]], shortest: int = 0) -> Any:
        """Return the value with markers for keys, texts and numbers. Add the values that stay to `fixed`.

        They are added by the marker of the key or text before them.
        """
        if isinstance(value, dict) and value:
            return {self.marked(markers): self.value(item, markers, fixed, shortest) for item in value.values()}
        if isinstance(value, list) and value:
            return [self.value(item, markers, fixed, shortest) for item in value]
        if isinstance(value, str):
            if not shortest or not value:
                return value and self.marked(markers)
            return self.filled(markers, len(value), shortest)
        if value and type(value) in (int, float):
            return self._number(value, markers)
        if before := next((marker for marker in reversed(markers) if marker[0] == "q"), ""):
            fixed.setdefault(before, []).append(json.dumps(value).lstrip("-"))
        return value

    def _number(self, value: float, markers: list[str]) -> int | float:
        """Return another number of the same kind: negative, whole or with decimals."""
        self.has_numbers = True
        self.count += 1
        whole = f"{'-' * (value < 0)}8{self.count:05d}7"
        decimals = "" if isinstance(value, int) else ".0" if value.is_integer() else ".12345678"
        markers.append(whole + decimals)
        return float(markers[-1]) if decimals else int(whole)


class MarkedTools(Marker):
    """Tools of markers. `offers` has the markers of each tool, its name first."""

    def __init__(self, tools: list[Any] | None) -> None:
        super().__init__()
        self.offers: list[list[str]] = []
        self.tools = tools and [self._tool(tool) for tool in tools]

    def _tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        function, markers = tool.get("function", tool), [self.next()]
        made = {**self._schema(function, markers), "name": markers[0]}
        self.offers.append(markers)
        return {**tool, "function": made} if "function" in tool else made

    def _schema(self, schema: Any, markers: list[str]) -> Any:
        """Return a JSON schema with markers for names of properties, descriptions, and texts of enumerations."""
        if isinstance(schema, list):
            return [self._schema(one, markers) for one in schema]
        if not isinstance(schema, dict):
            return schema
        properties = schema.get("properties")
        names = {name: self.marked(markers) for name in properties} if isinstance(properties, dict) else {}
        made: dict[str, Any] = {}
        for key, value in schema.items():
            if key == "properties" and names:
                made[key] = {names[name]: self._schema(one, markers) for name, one in value.items()}
            elif key == "required" and isinstance(value, list):
                made[key] = [names.get(name, name) for name in value]
            elif key in ("description", "enum") and isinstance(value, str | list):
                made[key] = self.value(value, markers, {})
            else:
                made[key] = self._schema(value, markers)
        return made


@lru_cache(maxsize=64)
def mark_tools(tools: bytes) -> MarkedTools:
    """Return the marked tools. Cached, because thousands of rows have the same tools."""
    return MarkedTools(orjson.loads(tools))


@lru_cache(maxsize=256)
def _fill(length: int) -> str:
    return (_FILLER * (length // len(_FILLER) + 1))[:length]
