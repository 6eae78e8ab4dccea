"""Which parts of a trace are shown: single parts, presets, and only steps with problems.

The choice is in the URL; otherwise the cookie with the last choice applies.
"""

from dataclasses import dataclass, field

from django.http import HttpRequest, QueryDict

COOKIE = "trace_view"


@dataclass(frozen=True, slots=True)
class Part:
    """`key` is its keyboard shortcut."""

    name: str
    label: str
    key: str


PARTS = (
    Part("system", "System", "1"),
    Part("reasoning", "Reasoning", "2"),
    Part("arguments", "Arguments", "3"),
    Part("results", "Results", "4"),
    Part("environment", "Environment", "5"),
)
_NAMES = tuple(part.name for part in PARTS)
_PRESETS = {
    "all": "hide=none",
    "path to the answer": "hide=system,reasoning,arguments,results",
    "errors only": "hide=none&only=errors",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """One link of the bar: its URL, and whether it is selected."""

    label: str
    query: str
    is_on: bool
    name: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Noise:
    hidden: frozenset[str] = field(default_factory=frozenset)
    only_errors: bool = False

    @classmethod
    def read(cls, request: HttpRequest) -> "Noise":
        given = request.GET
        if "hide" not in given and "only" not in given:
            given = QueryDict(request.COOKIES.get(COOKIE, "")[:200].replace("|", "&"))
        names = given.get("hide", "").split(",")
        return cls(frozenset(name for name in names if name in _NAMES), given.get("only") == "errors")

    @property
    def hide(self) -> str:
        """Return the hidden parts for the style sheet, separated by spaces."""
        return " ".join(name for name in _NAMES if name in self.hidden)

    @property
    def query(self) -> str:
        hide = ",".join(name for name in _NAMES if name in self.hidden) or "none"
        return f"hide={hide}" + ("&only=errors" if self.only_errors else "")

    @property
    def switches(self) -> list[Choice]:
        return [
            Choice(part.label, self._without(part.name).query, part.name not in self.hidden, part.name, part.key)
            for part in PARTS
        ]

    @property
    def presets(self) -> list[Choice]:
        return [Choice(label, query, query == self.query) for label, query in _PRESETS.items()]

    def _without(self, name: str) -> "Noise":
        """Return the choice with this part toggled."""
        return Noise(self.hidden ^ {name}, self.only_errors)
