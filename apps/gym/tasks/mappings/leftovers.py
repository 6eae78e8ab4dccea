"""Columns that are named like a part of the prompt or like an answer, and that a mapping which was found makes neither
of: people are told."""

from collections.abc import Mapping as Row
from collections.abc import Sequence
from typing import Any

from apps.gym.tasks.mappings.column_mapping import Mapping
from apps.gym.tasks.mappings.shapes import ANSWER_NAMES, PROMPT_NAMES, is_filled

PROMPT_LIKE = (
    *PROMPT_NAMES, "messages", "conversations", "system", "system_prompt", "context", "passage", "document", "inputs",
    "history", "choices", "options",
)  # fmt: skip
ANSWER_LIKE = (*ANSWER_NAMES, "answers", "outputs", "targets", "gold", "final_answer", "correct_answer")


_ATTEMPTS = (
    "These rows hold attempts with rewards: Collections → Import reads them as rollouts. As tasks, response and reward "
    "are fields like others."
)


def tell_of_attempts(rows: Sequence[Row[str, Any]]) -> str:
    """What people are told where most of the rows are rollouts, as a collection writes them, or nothing."""
    held = sum(isinstance(row.get("response"), dict) and "reward" in row for row in rows)
    return _ATTEMPTS if 2 * held > len(rows) else ""


class Leftovers:
    """Looks at rows, one after the other, for such columns with something in them."""

    def __init__(self, mapping: Mapping) -> None:
        used = set(mapping.paths)
        used |= {path.partition(".")[0] for path in used}
        self._sought = {*PROMPT_LIKE, *ANSWER_LIKE} - used
        self._seen: set[str] = set()

    def look(self, row: Row[str, Any]) -> None:
        for name in self._sought & row.keys():
            if is_filled(row[name]):
                self._sought.discard(name)
                self._seen.add(name)

    @property
    def told(self) -> str:
        """What people are told, or nothing."""
        parts, answers = (", ".join(one for one in like if one in self._seen) for like in (PROMPT_LIKE, ANSWER_LIKE))
        told = [f"Not in the prompt, though named like a part of it: {parts}."] if parts else []
        told += [f"Not the expected answer, though named like one: {answers}."] if answers else []
        return " ".join([*told, "They stay with the tasks as fields; map the columns to change that."] if told else [])
