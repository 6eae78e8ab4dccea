"""Find unmapped columns whose names suggest a part of the prompt or an answer, and warn the user."""

from collections.abc import Collection, Sequence
from collections.abc import Mapping as Row
from typing import Any

from apps.gym.tasks.mappings.column_mapping import Mapping
from apps.gym.tasks.mappings.shapes import ANSWER_NAMES, PROMPT_NAMES, is_filled
from apps.gym.tasks.mappings.templates import template_paths

PROMPT_LIKE = (
    *PROMPT_NAMES, "messages", "conversations", "system", "system_prompt", "context", "passage", "document", "inputs",
    "history", "choices", "options",
)  # fmt: skip
ANSWER_LIKE = (*ANSWER_NAMES, "answers", "outputs", "targets", "gold", "final_answer", "correct_answer")


_NAMED = 30
_ATTEMPTS = (
    "These rows contain attempts with rewards. To import them as rollouts, use Collections → Import. "
    "If you load them as tasks, response and reward become verifier fields."
)


def warn_about_attempts(rows: Sequence[Row[str, Any]]) -> str:
    """Return a warning if most rows are rollouts, as a collection writes them, or an empty text."""
    held = sum(isinstance(row.get("response"), dict) and "reward" in row for row in rows)
    return _ATTEMPTS if 2 * held > len(rows) else ""


def unmapped_columns(mapping: Mapping, rows: Sequence[Row[str, Any]]) -> list[str]:
    """Return the columns with a value that no part of the mapping uses, in order of occurrence."""
    used = {path.partition(".")[0] for path in mapping.paths} | set(template_paths(mapping.external_id))
    names = dict.fromkeys(name for row in rows for name, value in row.items() if is_filled(value))
    return [name for name in names if name not in used and name not in mapping.paths]


def warn_about_unmapped(mapping: Mapping, rows: Sequence[Row[str, Any]], *, exclude: Collection[str] = ()) -> str:
    """Return what becomes of the columns that are not mapped, without those named `exclude`, or an empty text."""
    names = [name for name in unmapped_columns(mapping, rows) if name not in exclude]
    if not names:
        return ""
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
    if mapping.rest == "drop":
        return f"These columns are dropped: {listed}."
    return f"These columns are not mapped and become verifier fields: {listed}."


class Leftovers:
    """Collects the non-empty columns of that kind, row by row."""

    def __init__(self, mapping: Mapping) -> None:
        used = set(mapping.paths)
        used |= {path.partition(".")[0] for path in used}
        self._sought = {*PROMPT_LIKE, *ANSWER_LIKE} - used
        self._seen: set[str] = set()

    def add(self, row: Row[str, Any]) -> None:
        for name in self._sought & row.keys():
            if is_filled(row[name]):
                self._sought.discard(name)
                self._seen.add(name)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._seen)

    @property
    def warning(self) -> str:
        """Return the warning, or an empty text."""
        parts, answers = (", ".join(one for one in like if one in self._seen) for like in (PROMPT_LIKE, ANSWER_LIKE))
        told = [f"Columns that look like prompt parts but are not mapped: {parts}."] if parts else []
        told += [f"Columns that look like expected answers but are not mapped: {answers}."] if answers else []
        return " ".join([*told, "They become verifier fields. Map the columns to change this."] if told else [])
