"""Choose which parts of a trace are shown.

The choice is in the URL. Without one, the last choice is read from a cookie.
"""

from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, QueryDict

COOKIE = "trace_view"
_PARTS = {
    "system": ("System", "1"),
    "reasoning": ("Reasoning", "2"),
    "arguments": ("Arguments", "3"),
    "results": ("Results", "4"),
    "environment": ("Environment", "5"),
}
"""Label and keyboard shortcut of each part."""
_PRESETS = {
    "All": "hide=none",
    "Compact": "hide=system,reasoning,arguments,results",
    "Errors only": "hide=none&only=errors",
}


@dataclass(frozen=True, slots=True)
class TraceView:
    hidden: frozenset[str] = field(default_factory=frozenset)
    only_errors: bool = False

    @classmethod
    def read(cls, request: HttpRequest) -> "TraceView":
        given = request.GET
        if "hide" not in given and "only" not in given:
            given = QueryDict(request.COOKIES.get(COOKIE, "")[:200].replace("|", "&"))
        names = given.get("hide", "").split(",")
        return cls(frozenset(name for name in names if name in _PARTS), given.get("only") == "errors")

    @property
    def hide(self) -> str:
        """Return the hidden parts, separated by spaces, for a CSS attribute selector."""
        return " ".join(name for name in _PARTS if name in self.hidden)

    @property
    def query(self) -> str:
        hide = ",".join(name for name in _PARTS if name in self.hidden) or "none"
        return f"hide={hide}" + ("&only=errors" if self.only_errors else "")

    @property
    def switches(self) -> list[dict[str, Any]]:
        """Return a toggle link for each part."""
        return [
            {
                "name": name,
                "label": label,
                "key": key,
                "query": self._toggled(name).query,
                "is_on": name not in self.hidden,
            }
            for name, (label, key) in _PARTS.items()
        ]

    @property
    def presets(self) -> list[dict[str, Any]]:
        return [{"label": label, "query": query, "is_on": query == self.query} for label, query in _PRESETS.items()]

    def _toggled(self, name: str) -> "TraceView":
        """Return the view with this part toggled."""
        return TraceView(self.hidden ^ {name}, self.only_errors)
