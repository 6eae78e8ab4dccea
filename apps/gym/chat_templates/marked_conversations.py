"""Replace each part of a conversation by a unique marker, and find in the rendered text which markers survived."""

import json
import re
from itertools import pairwise
from typing import Any, NamedTuple

Message = dict[str, Any]

_ROLES = {"system": "system_lost", "developer": "system_lost", "tool": "result_lost"}
_PYTHON = re.compile(r"\b(?:None|True|False)\b")


class Part(NamedTuple):
    """A text, call or tool. `lost` is the kind of finding if none of its markers survived, `cut` if only some did.

    A text survived unchanged if the rendered text contains `whole`.
    """

    markers: list[str]
    lost: str
    cut: str
    whole: str = ""


class MarkedConversation:
    """A conversation of markers, and its parts: `texts` and `calls` in order, and `offers`, the tools."""

    def __init__(self, messages: list[Message], tools: list[Any] | None) -> None:
        self._count = 0
        self.parts: list[Part] = []
        self.offers: list[Part] = []
        self.tools = tools and [self._tool(tool) for tool in tools]
        self.messages = [self._message(message) for message in messages]

    def find_kinds(self, text: str, literals: str) -> set[str]:
        """Return the kinds of findings in a rendered text. `literals` is what the template itself writes."""
        found = {_judge(part, text) for part in (*self.parts, *self.offers)} - {""}
        for marker in (marker for part in self.parts if not part.whole for marker in part.markers):
            if f'\\"{marker}' in text:
                found.add("arguments_as_text")
            if f"'{marker}'" in text:
                found.add("python_values")
        if any(word not in literals for word in set(_PYTHON.findall(text))):
            found.add("python_values")
        # The name of a call, its last marker, is also in its result.
        starts = (text.find((part.markers[:-1] or part.markers)[0]) for part in self.parts)
        if any(later < earlier for earlier, later in pairwise(place for place in starts if place >= 0)):
            found.add("moved")
        return found

    def _next(self) -> str:
        self._count += 1
        return f"q{self._count:05d}z"

    def _marked(self, markers: list[str]) -> str:
        markers.append(self._next())
        return markers[-1]

    def _message(self, message: Message) -> Message:
        made, calls, role = dict(message), message.get("tool_calls"), message.get("role", "")
        for name in ("reasoning_content", "thinking", "reasoning"):
            if made.get(name):
                made[name] = self._text("reasoning_lost", made[name])
        lost = "call_text_lost" if calls else _ROLES.get(role, "text_lost")
        if isinstance(content := made.get("content"), list):
            made["content"] = [
                {**one, "text": self._text(lost, one["text"])} if one.get("text") else one for one in content
            ]
        elif content and content.strip():
            made["content"] = self._text(lost, content)
        if calls:
            made["tool_calls"] = [self._call(call, number) for number, call in enumerate(calls)]
        if role == "tool" and "name" in made:
            # Not that of the call: in a result, it would hide that the name of the call is lost.
            made["name"] = self._next()
        return made

    def _text(self, lost: str, text: str) -> str:
        markers = [self._next(), self._next()]
        whole = ("</think>" if "</think>" in text else '"').join(markers)
        self.parts.append(Part(markers, lost, "text_cut", whole))
        return whole

    def _call(self, call: Message, number: int) -> Message:
        markers: list[str] = []
        arguments = call["function"].get("arguments")
        try:
            read = json.loads(arguments) if isinstance(arguments, str) else arguments
            made = self._value(read, markers)
            made = json.dumps(made, ensure_ascii=False) if isinstance(arguments, str) else made
        except ValueError:
            made = self._marked(markers)
        name = self._marked(markers)
        self.parts.append(Part(markers, "parallel_call_lost" if number else "call_lost", "call_part_lost"))
        return {**call, "function": {**call["function"], "name": name, "arguments": made}}

    def _value(self, value: Any, markers: list[str]) -> Any:
        if isinstance(value, dict):
            return {self._marked(markers): self._value(item, markers) for item in value.values()}
        if isinstance(value, list):
            return [self._value(item, markers) for item in value]
        return self._marked(markers) if isinstance(value, str) and value else value

    def _tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        function, markers = tool.get("function", tool), [self._next()]
        made = {**self._schema(function, markers), "name": markers[0]}
        self.offers.append(Part(markers, "tools_lost", "schema_lost"))
        return {**tool, "function": made} if "function" in tool else made

    def _schema(self, schema: Any, markers: list[str]) -> Any:
        """Return a JSON schema with markers for names of properties, descriptions, and texts of enumerations."""
        if isinstance(schema, list):
            return [self._schema(one, markers) for one in schema]
        if not isinstance(schema, dict):
            return schema
        properties = schema.get("properties")
        names = {name: self._marked(markers) for name in properties} if isinstance(properties, dict) else {}
        made: dict[str, Any] = {}
        for key, value in schema.items():
            if key == "properties" and names:
                made[key] = {names[name]: self._schema(one, markers) for name, one in value.items()}
            elif key == "required" and isinstance(value, list):
                made[key] = [names.get(name, name) for name in value]
            elif key in ("description", "enum") and isinstance(value, str | list):
                made[key] = self._value(value, markers)
            else:
                made[key] = self._schema(value, markers)
        return made


def _judge(part: Part, text: str) -> str:
    if part.whole and part.whole in text:
        return ""
    survived = [marker in text for marker in part.markers]
    decisive = survived
    if not part.whole:
        # Of a tool, its name; of a call, its arguments: its name, which is last, may also be rendered with its result.
        decisive = survived[:1] if part.lost == "tools_lost" else survived[:-1] or survived
    if not any(decisive):
        return part.lost
    # A template that splits a text at </think> makes reasoning of a part of it.
    is_cut = not all(survived) or "</think>" in part.whole
    return part.cut if is_cut else "reworded" if part.whole else ""
