"""The expected answer of a task row, as text for lists and previews."""

from collections.abc import Mapping
from typing import Any

from apps.gym.redaction.shortening import cut
from apps.gym.tasks.mappings.leftovers import ANSWER_LIKE
from apps.gym.traces.items import dump_json

ANSWER_FIELDS = ("expected_answer", "ground_truth", "answer", "reference_answer", "label")
"""Fields of task rows with the expected answer, as trainers name them."""
_FIELDS = tuple(dict.fromkeys((*ANSWER_FIELDS, "expected_answers", *ANSWER_LIKE)))
_METADATA = "verifier_metadata"


def find_expected(row: Mapping[str, Any], *, characters: int = 200) -> str:
    """Return the first field of the row, or of its `verifier_metadata`, that looks like an expected answer.

    The text is on one line of at most that many characters; empty if there is no such field.
    """
    metadata = row.get(_METADATA)
    places = [row, metadata] if isinstance(metadata, dict) else [row]
    for fields in places:
        for name in _FIELDS:
            value = fields.get(name)
            if value not in (None, "", [], {}):
                text = value if isinstance(value, str) else dump_json(value)
                return cut(" ".join(cut(text, 4 * characters).split()), characters)
    return ""
