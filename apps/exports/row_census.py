"""What a trainer should know of the written rows before it loads them: the dataset's splits that they are of, whose
weights sampled them, how tokens join."""

from collections import Counter
from collections.abc import Callable
from typing import Any

Rows = list[dict[str, Any]]
Told = tuple[set[str], dict[str, int]]
"""The versions that answered in an attempt, and how its tokens join: `segments`, `captured` of `calls`."""


class Census:
    """Counts rows as they are written: by the split of their task, and by what those of the format say of themselves.
    Others are not looked at: the fields of a task may have any name."""

    def __init__(self, format: str) -> None:
        self.splits: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self._read = _READERS.get(format)

    def count(self, rows: Rows, *, dataset_split: str) -> None:
        """The rows of one attempt, pair or task."""
        self.splits[dataset_split] += len(rows)
        if self._read is None:
            return
        versions, found = self._read(rows)
        self.versions.update(versions - {""})
        if found:
            self.tokens["rows"] += 1
            self.tokens["one_segment" if found["segments"] == 1 else "more_segments"] += 1
            self.tokens["every_call_captured"] += found["captured"] == found["calls"]

    def figures(self) -> dict[str, Any]:
        """For the manifest; without splits, versions or tokens there is no key for them."""
        counts = {name: self.tokens[name] for name in ("rows", "one_segment", "more_segments", "every_call_captured")}
        return {
            **({"dataset_splits": dict(sorted(self.splits.items()))} if any(self.splits) else {}),
            **({"model_versions": dict(sorted(self.versions.items()))} if self.versions else {}),
            **({"tokens": counts} if self.tokens else {}),
        }


def _of_rollout(rows: Rows) -> Told:
    own = rows[0]["gymweb"]
    return {*own.get("model_versions", ()), own.get("model_version", "")}, own.get("tokens", {})


def _of_segments(rows: Rows) -> Told:
    first = rows[0]
    versions = {one["version"] for row in rows for one in row["sampled"]} or {first["model_version"]}
    found = {"segments": first["segments"], "captured": first["captured_calls"], "calls": first["calls"]}
    return versions, found if first["segments"] else {}


_READERS: dict[str, Callable[[Rows], Told]] = {"nemo_gym_rollouts": _of_rollout, "scored_rollouts": _of_segments}
