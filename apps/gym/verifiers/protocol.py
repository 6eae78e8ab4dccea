"""The verifier interface: parameters, and a pure function from a task row and a response to a reward.

The module also has the base class of verifiers that compare answers.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from apps.gym.answer_texts import extract_answer
from apps.gym.errors import VerifierError
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import answer_text, expected_answer, extraction_mode

if TYPE_CHECKING:
    from apps.gym.judging.judge import Judgement

Problem = tuple[str, str]
"""JSON pointer to an invalid parameter, and a message that completes the sentence "<parameter> …"."""

TimeLimit = Annotated[
    float,
    msgspec.Meta(ge=0.1, le=600, title="Time limit", description="In seconds. A verification that takes longer fails"),
]


class Verifier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """One kind of verifier, with its parameters as fields. Each docstring states the formula and the range."""

    title: ClassVar[str]

    def runs_on_loop(self, row: TaskRow) -> bool:
        """Return True if the verifier may run on the event loop, because its time depends only on the text length.

        Other verifiers run in a separate process, which is stopped at the time limit.
        """
        return True

    @property
    def max_seconds(self) -> float:
        """Return the time limit of a verification in a separate process: the parameter `time_limit`, or 10 s."""
        return float(getattr(self, "time_limit", 10.0))

    @classmethod
    def prepare(cls) -> None:
        """Import what `verify` needs. Runs in the separate process before the time limit starts."""

    @property
    def needs(self) -> frozenset[str]:
        """Return the row fields that verification requires: the `expected_field`, if there is one."""
        field = getattr(self, "expected_field", None)
        return frozenset() if field is None else frozenset({field})

    def find_problems(self) -> Iterator[Problem]:
        """Yield the problems that the types of the parameters do not express, for example contradictions."""
        return iter(())

    def check_row(self, row: TaskRow) -> None:
        """Raise VerifierError if the row lacks a required field or has an invalid value in one."""

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        """Score an attempt.

        `response` is a Responses object whose `output` has every item after the prompt. Raises VerifierError.
        """
        raise NotImplementedError


class JudgedVerifier(Verifier, frozen=True, kw_only=True):
    """Base class of verifiers that call the environment's judge model."""

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        raise VerifierError("this environment has no judge model. Choose one in its settings").permanent()

    async def judge(self, row: TaskRow, response: dict[str, Any], judgement: "Judgement") -> Reward:
        """Score an attempt. Raises JudgeError, and VerifierError if the row lacks what the judge needs."""
        raise NotImplementedError


def read_type(verifier: type[Verifier] | Verifier) -> str:
    return str(verifier.__struct_config__.tag)


Extraction = Literal["boxed", "last_line", "final_answer", "full_response", "pattern"]


class AnswerVerifier(Verifier, frozen=True, kw_only=True):
    """Base class of verifiers that extract an answer from the reply and compare it with the expected answer."""

    expected: (
        Annotated[
            str | int | float,
            Meta(
                title="Expected answer",
                description="The same answer for all tasks. If empty, it is read from the row field named below.",
            ),
        ]
        | None
    ) = None
    expected_field: Annotated[
        str, Meta(title="Field of the expected answer", description="Name of the row field that holds it", min_length=1)
    ] = "expected_answer"
    extract: (
        Annotated[
            Extraction,
            Meta(
                title="Answer location",
                description=(
                    "Default: `extraction_mode` of the row, otherwise the last box, `<answer>…</answer>`, the short "
                    'answer after "Answer:", "The answer is" or `####`, the display formula at the end, or the last '
                    "line"
                ),
            ),
        ]
        | None
    ) = None
    pattern: Annotated[
        str,
        Meta(
            title="Pattern",
            description="For `pattern`: a regular expression. The answer is the last match, or its first group if it "
            "has one.",
            max_length=2_000,
        ),
    ] = ""
    time_limit: TimeLimit = 10.0
    too_slow: Annotated[
        Literal["error", "wrong"],
        Meta(
            title="At the time limit",
            description="`error`: the rollout fails without a reward. `wrong`: the reward is 0.0, because only the "
            "answer can make this verifier slow",
        ),
    ] = "error"
    component: ClassVar[str]
    """The component of the reward."""

    def runs_on_loop(self, row: TaskRow) -> bool:
        return self.extract != "pattern"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.expected_field} if self.expected is None else ())

    def find_problems(self) -> Iterator[Problem]:
        if self.extract == "pattern" and not self.pattern:
            yield "/pattern", "is missing. Give the regular expression for `extract`"
        if self.pattern and self.extract != "pattern":
            yield "/pattern", 'needs `extract` to be "pattern"'
        if self.pattern and (problem := pattern_problem(self.pattern)):
            yield "/pattern", problem

    def find_expected(self, row: TaskRow) -> str:
        """Return the expected answer. Raises VerifierError if there is none."""
        if self.expected is not None:
            return answer_text(self.expected, "the verifier's `expected`")
        return expected_answer(row, self.expected_field)

    def find_answer(self, row: TaskRow, response: dict[str, Any]) -> str | None:
        """Return the given answer, or None. Raises VerifierError for an unknown `extraction_mode`."""
        return self.extract_answer(row, assistant_text(response.get("output") or []))

    def extract_answer(self, row: TaskRow, text: str) -> str | None:
        """Return the answer in a reply, or None. Raises VerifierError for an unknown `extraction_mode`."""
        if self.extract != "pattern":
            return extract_answer(text, self.extract or extraction_mode(row))
        return find_last(self.pattern, text, re.MULTILINE) or None


def find_last(pattern: str, text: str, flags: re.RegexFlag) -> str | None:
    """Return the last match of a pattern, or its first group if it has groups. None without a match."""
    last = next(reversed(list(re.finditer(pattern, text, flags))), None)
    return None if last is None else (last[1] if last.re.groups else last[0]) or ""


def answer_reward(name: str, value: float, explanation: str, *, answer: str | None, expected: str) -> Reward:
    """Return a reward with one component called `name`, and both answers as details."""
    details = {"extracted_answer": answer, "expected_answer": expected}
    return Reward(value=value, components={name: value}, explanation=explanation, details=details)


def score_texts(mode: str, found: int, total: int) -> float:
    """Return the score for finding `found` of `total` texts, 1.0 if there are none.

    Mode `all` gives 1.0 if all are found, `any` if at least one is found, and `fraction` gives the fraction found.
    """
    if not total:
        return 1.0
    if mode == "fraction":
        return found / total
    return float(found == total) if mode == "all" else float(found > 0)


def pattern_problem(pattern: str) -> str:
    """Return the problem of a regular expression, or an empty text."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}. Escape literal brackets, dots and stars with a backslash"
    return ""


def permanent_error(message: str) -> VerifierError:
    """Return an error that is permanent: every further attempt would fail the same way."""
    return VerifierError(message).permanent()
