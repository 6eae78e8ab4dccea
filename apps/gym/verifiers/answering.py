"""What verifiers of one final answer share: where the expected answer stands, and how the given one is found."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from apps.gym.errors import VerifierError
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import answer_text, expected_answer, extract_answer, extraction_mode
from apps.gym.verifiers.protocol import Problem, TimeLimit, Verifier

Extraction = Literal["boxed", "last_line", "final_answer", "full_response", "pattern"]


class AnswerVerifier(Verifier, frozen=True, kw_only=True):
    expected: (
        Annotated[
            str | int | float,
            Meta(title="Expected answer", description="The same for every task; left out, the row's field has it"),
        ]
        | None
    ) = None
    expected_field: Annotated[
        str, Meta(title="Field of the expected answer", description="Its name in the task's row", min_length=1)
    ] = "expected_answer"
    extract: (
        Annotated[
            Extraction,
            Meta(
                title="Where the answer stands",
                description="Left out: what the row's `extraction_mode` says, else the last box, else the last line",
            ),
        ]
        | None
    ) = None
    pattern: Annotated[
        str,
        Meta(
            title="Pattern",
            description="For `pattern`: a regular expression; its last match counts, and its first group if it has one",
            max_length=2_000,
        ),
    ] = ""
    time_limit: TimeLimit = 10.0

    def stays_on_loop(self, row: TaskRow) -> bool:
        return self.extract != "pattern"

    @property
    def seconds(self) -> float:
        return self.time_limit

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.expected_field} if self.expected is None else ())

    def find_problems(self) -> Iterator[Problem]:
        if self.extract == "pattern" and not self.pattern:
            yield "/pattern", "is missing: give the regular expression that `extract` asks for"
        if self.pattern and self.extract != "pattern":
            yield "/pattern", 'is used only where `extract` is "pattern": set that, or leave the pattern out'
        if self.pattern and (problem := pattern_problem(self.pattern)):
            yield "/pattern", problem

    def find_expected(self, row: TaskRow) -> str:
        """Raises VerifierError where there is none."""
        if self.expected is not None:
            return answer_text(self.expected, "the verifier's `expected`")
        return expected_answer(row, self.expected_field)

    def find_answer(self, row: TaskRow, response: dict[str, Any]) -> str | None:
        """The answer that was given, or None. Raises VerifierError for an `extraction_mode` that nobody knows."""
        text = assistant_text(response.get("output") or [])
        if self.extract != "pattern":
            return extract_answer(text, self.extract or extraction_mode(row))
        last = None
        for last in re.finditer(self.pattern, text, re.MULTILINE):  # noqa: B007 - the last one counts
            pass
        if last is None:
            return None
        return (last[1] if last.re.groups else last[0] or "") or None


def pattern_problem(pattern: str) -> str:
    """What is wrong with a regular expression, or nothing."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}. A literal bracket, dot or star is written with a backslash"
    return ""


def refuse(message: str) -> VerifierError:
    """An error that every further attempt would meet again."""
    return VerifierError(message).lasting()
