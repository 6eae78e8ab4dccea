"""The expected answer of a task, the mode that finds the given one, and excerpts for explanations."""

from apps.gym.answer_texts import EXTRACTION_MODES, ExtractionMode
from apps.gym.errors import VerifierError
from apps.gym.redaction.shortening import shorten
from apps.gym.traces.items import TaskRow


def excerpt(text: str) -> str:
    """Return the text, shortened for use in a sentence."""
    return shorten(text, 200)


def expected_answer(row: TaskRow, field: str = "expected_answer") -> str:
    """Return the row's field as text. Raises VerifierError if it is missing, or neither text nor a number."""
    expected = row.get(field)
    if expected is None:
        raise VerifierError(f"the task row has no `{field}`, which this verifier needs").permanent()
    return answer_text(expected, f"the task row's `{field}`")


def answer_text(expected: object, where: str) -> str:
    """Return a number or text as text. Raises VerifierError for other types and empty values."""
    if isinstance(expected, bool) or not isinstance(expected, str | int | float):
        raise VerifierError(f"{where} must be text or a number").permanent()
    text = str(expected).strip()
    if not text:
        raise VerifierError(f"{where} is empty").permanent()
    return text


def extraction_mode(row: TaskRow) -> ExtractionMode | None:
    """Return the row's `extraction_mode`, or None without one. Raises VerifierError for an unknown one."""
    wanted: ExtractionMode | None = row.get("extraction_mode")
    if wanted is not None and wanted not in EXTRACTION_MODES:
        names = ", ".join(EXTRACTION_MODES)
        raise VerifierError(f"the task row's `extraction_mode` is {wanted!r}, not one of {names}").permanent()
    return wanted
