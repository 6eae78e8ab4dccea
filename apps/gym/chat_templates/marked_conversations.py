"""Replace each part of a conversation by unique markers, and find in the rendered text which markers survived.

Texts keep their length, so that a template which cuts them loses a marker. Numbers become other numbers of their kind.
Values without another of their kind (null, true, false, 0, empty lists and objects) stay: they must follow the marker
before them.
"""

import json
import re
from collections import defaultdict
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from apps.gym.chat_templates.marked_values import SHORTEST, SHORTEST_ARGUMENT, Marker, mark_tools

Message = dict[str, Any]

_ROLES = {"system": "system_lost", "developer": "system_lost", "tool": "result_lost"}
_PYTHON = re.compile(r"\b(?:None|True|False)\b")
_MARKER = re.compile(r"q\d{5}z")
_NUMBER = re.compile(r"8\d{5}7(?:\.\d+)?")
_SPELLED = {
    "null": r"\b(?:null|None)\b",
    "true": r"\b[tT]rue\b",
    "false": r"\b[fF]alse\b",
    "0": r"(?<![\w.])-?0(?![\w.])",
    "0.0": r"(?<![\w.])-?0\.0(?!\w)",
    "[]": r"\[\s*\]",
    "{}": r"\{\s*\}",
}


class Part(NamedTuple):
    """A text, call or tool. `lost` is the kind of finding if none of its markers survived, `cut` if only some did.

    A text survived unchanged if the rendered text contains `whole`. `fixed` has the values that stay, by the marker
    before them.
    """

    markers: list[str]
    lost: str
    cut: str
    whole: str = ""
    fixed: dict[str, list[str]] = {}


class Rendered:
    """A rendered text with its markers."""

    def __init__(self, text: str, *, has_numbers: bool) -> None:
        self.text = text
        self.first: dict[str, int] = {}
        """The first place of each marker."""
        self._after: dict[str, list[str]] = defaultdict(list)
        places = [(one.start(), one[0]) for one in _MARKER.finditer(text)]
        for (place, marker), (following, _) in pairwise([*places, (len(text), "")]):
            end = place + len(marker)
            self.first.setdefault(marker, place)
            self._after[marker].append(text[end:following])
        for one in _NUMBER.finditer(text) if has_numbers else ():
            before, after = text[max(one.start() - 1, 0) : one.start()], text[one.end() : one.end() + 1]
            if not (before.isalnum() or before in ("_", ".") or after.isalnum()):
                self.first.setdefault(f"{'-' * (before == '-')}{one[0]}", one.start())

    def is_after(self, marker: str, values: list[str]) -> bool:
        """Return True if these values follow the marker, in this order and before the next marker."""
        pattern = re.compile(".*?".join(_SPELLED[value] for value in values), re.DOTALL)
        return any(map(pattern.search, self._after[marker]))

    def quotes(self, marker: str) -> tuple[bool, bool]:
        """Return whether the marker is in a JSON text in a JSON text, and whether it is in a text of Python."""
        place = self.first.get(marker, -1)
        before = self.text[max(place - 2, 0) : place] if place > 0 else ""
        return before == '\\"', before[-1:] == "'"


class MarkedConversation(Marker):
    """A conversation of markers, and its parts: `texts` and `calls` in order, and `offers`, the tools.

    Without `keeps_ids`, all ids of calls are equal, so that conversations which differ in words only become equal.
    """

    def __init__(self, messages: list[Message], tools: list[Any] | None, *, keeps_ids: bool = True) -> None:
        marked = mark_tools(orjson.dumps(tools))
        super().__init__(marked.count)
        self._ids = {} if keeps_ids else {"id": "id", "tool_call_id": "id"}
        self.parts: list[Part] = []
        self.tools = marked.tools
        self.offers = [Part(markers, "tools_lost", "schema_lost") for markers in marked.offers]
        self.has_numbers = marked.has_numbers
        self.messages = [self._message(message) for message in messages]

    @property
    def digest(self) -> bytes:
        """Return a hash that is equal for equal marked conversations."""
        return blake2b(orjson.dumps((self.messages, self.tools)), digest_size=16).digest()

    def find_kinds(self, text: str, literals: str) -> set[str]:
        """Return the kinds of findings in a rendered text. `literals` is what the template itself writes."""
        rendered = Rendered(text, has_numbers=self.has_numbers)
        found = {_judge(part, rendered) for part in (*self.parts, *self.offers)} - {""}
        for marker in (marker for part in self.parts if not part.whole for marker in part.markers):
            as_text, as_python = rendered.quotes(marker)
            found.update(("arguments_as_text",) * as_text + ("python_values",) * as_python)
        if any(word in text for word in ("None", "True", "False")):
            found.update("python_values" for word in _PYTHON.findall(text) if word not in literals)
        # The name of a call, its last marker, is also in its result.
        starts = (rendered.first.get((part.markers[:-1] or part.markers)[0], -1) for part in self.parts)
        if any(later < earlier for earlier, later in pairwise(place for place in starts if place >= 0)):
            found.add("moved")
        return found

    def _message(self, message: Message) -> Message:
        made, calls, role = self._without_ids(message), message.get("tool_calls"), message.get("role", "")
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
            made["name"] = self.next()
        return made

    def _without_ids(self, message: Message) -> Message:
        return {name: self._ids.get(name, value) for name, value in message.items()}

    def _text(self, lost: str, text: str) -> str:
        markers: list[str] = []
        start = self.marked(markers) + ("</think>" if "</think>" in text else '"')
        whole = start + self.filled(markers, len(text), SHORTEST)
        self.parts.append(Part(markers, lost, "text_cut", whole))
        return whole

    def _call(self, call: Message, number: int) -> Message:
        markers: list[str] = []
        fixed: dict[str, list[str]] = {}
        arguments = call["function"].get("arguments")
        try:
            read = json.loads(arguments) if isinstance(arguments, str) else arguments
            made = self.value(read, markers, fixed, SHORTEST_ARGUMENT)
            made = json.dumps(made, ensure_ascii=False) if isinstance(arguments, str) else made
        except ValueError:
            made = self.marked(markers)
        name = self.marked(markers)
        self.parts.append(Part(markers, "parallel_call_lost" if number else "call_lost", "call_part_lost", fixed=fixed))
        return {**self._without_ids(call), "function": {**call["function"], "name": name, "arguments": made}}


def _judge(part: Part, rendered: Rendered) -> str:
    if part.whole and part.whole in rendered.text:
        return ""
    survived = [marker in rendered.first for marker in part.markers]
    decisive = survived
    if not part.whole:
        # Of a tool, its name; of a call, its arguments: its name, which is last, may also be rendered with its result.
        decisive = survived[:1] if part.lost == "tools_lost" else survived[:-1] or survived
    if not any(decisive):
        return part.lost
    # A template that splits a text at </think> makes reasoning of a part of it.
    is_cut = not all(survived) or "</think>" in part.whole
    is_cut = is_cut or not all(rendered.is_after(*one) for one in part.fixed.items())
    return part.cut if is_cut else "reworded" if part.whole else ""
