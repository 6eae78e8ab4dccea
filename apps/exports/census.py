"""What a trainer should know of the written rows before it loads them: whose weights sampled them, how tokens join."""

from collections import Counter
from typing import Any


class Census:
    """Counts rows as they are written, by what they say of themselves under `gymweb`."""

    def __init__(self) -> None:
        self.versions: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()

    def count(self, rows: list[dict[str, Any]]) -> None:
        """The rows of one attempt, pair or task."""
        own = rows[0].get("gymweb", {})
        if "model_version" in own:
            self.versions[own["model_version"]] += 1
        if "tokens" in own:
            found = own["tokens"]
            self.tokens["rows"] += 1
            self.tokens["one_segment" if found["segments"] == 1 else "more_segments"] += 1
            self.tokens["every_call_captured"] += found["captured"] == found["calls"]

    def figures(self) -> dict[str, Any]:
        """For the manifest; without versions or tokens there is no key for them."""
        counts = {name: self.tokens[name] for name in ("rows", "one_segment", "more_segments", "every_call_captured")}
        return {
            **({"model_versions": dict(sorted(self.versions.items()))} if self.versions else {}),
            **({"tokens": counts} if self.tokens else {}),
        }
