"""Multiple choice: the chosen letter equals the expected one. Modes are those of NeMo Gym's mcqa."""

import re
from collections.abc import Iterator
from string import ascii_uppercase
from typing import Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta

from apps.gym.answer_texts import last_boxed
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, assistant_text
from apps.gym.verifiers.answer_extraction import answer_text, excerpt
from apps.gym.verifiers.protocol import (
    Problem,
    TimeLimit,
    Verifier,
    answer_reward,
    find_last,
    pattern_problem,
    permanent_error,
)

Mode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"]
MODES: tuple[Mode, ...] = get_args(Mode)
Options = dict[str, str]

_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_LETTER = re.compile(r"([A-Za-z])\s*(?:[:).\-].*)?", re.DOTALL)
_ANSWER = re.compile(r"answer\s{0,4}:\s{0,4}(\S.*)", re.IGNORECASE)
_ANSWER_MARKED = re.compile(
    r"^[ \t>#*_-]{0,20}(?:the )?(?:final )?answer[*_]{0,3}\s{0,4}:[ \t*_]{0,8}(\S.*)$", re.I | re.M
)
_AMBIGUOUS = re.compile(r"\b[A-Za-z]\b\s{0,4}(?:,|/|&|\bor\b|\band\b)\s{0,4}\(?\b[A-Za-z]\b", re.IGNORECASE)
_LEADING = re.compile(r"\(?([A-Za-z])(?:\)|[.:\-]|\s|$)")


class MultipleChoice(Verifier, frozen=True, kw_only=True, tag="multiple_choice"):
    """1.0 if the chosen letter is the expected letter, otherwise 0.0.

    The row has `options` ([{"A": "text"}, …], or a list of texts) and `expected_answer`, a letter. If a pattern is set,
    its last match is read first: a letter, or the text of an option, is the choice. Otherwise the mode decides.

    strict_single_letter_boxed: a letter alone or before one of `: ) . -` in the last box. lenient_boxed: the same, else
    the only option whose text is in the box. lenient_answer_colon: after the first "Answer:", a letter or the text of
    an option. lenient_answer_colon_md: after the last line that starts with "Answer:", with or without Markdown; "A or
    B" is not an answer. In every mode, a letter followed only by letters of other options, as in A-B-C, is not a
    choice.

    Range: 0.0 or 1.0. Component: `multiple_choice`.
    """

    title: ClassVar[str] = "Multiple choice"
    mode: (
        Annotated[
            Mode,
            Meta(title="How to read the choice", description="Default: `grading_mode` of the row, otherwise strict"),
        ]
        | None
    ) = None
    pattern: Annotated[
        str,
        Meta(
            title="Pattern",
            description="Tried before the mode. Default: `template_metadata.output_regex` of the row.",
            max_length=2_000,
        ),
    ] = ""
    options_field: Annotated[str, Meta(title="Field of the options", min_length=1)] = "options"
    expected_field: Annotated[str, Meta(title="Field of the expected letter", min_length=1)] = "expected_answer"
    time_limit: TimeLimit = 5.0

    def runs_on_loop(self, row: TaskRow) -> bool:
        return not self._patterns(row)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.options_field, self.expected_field})

    def find_problems(self) -> Iterator[Problem]:
        if self.pattern and (problem := pattern_problem(self.pattern)):
            yield "/pattern", problem

    def check_row(self, row: TaskRow) -> None:
        self._read(row)
        self._mode(row)
        self._patterns(row)

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        options, expected = self._read(row)
        text = assistant_text(response.get("output") or [])
        chosen = self._choose(row, text, options)
        value = float(chosen == expected)
        told = f"chose {chosen or 'nothing'}; {excerpt(expected)} is right"
        return answer_reward("multiple_choice", value, told, answer=chosen, expected=expected)

    def _read(self, row: TaskRow) -> tuple[Options, str]:
        options = read_options(row.get(self.options_field), self.options_field)
        expected = answer_text(row.get(self.expected_field), f"the task row's `{self.expected_field}`").upper()
        if expected not in options:
            told = f"{excerpt(expected)!r}, not the letter of an option: {', '.join(options)}"
            raise permanent_error(f"the task row's `{self.expected_field}` is {told}")
        return options, expected

    def _choose(self, row: TaskRow, text: str, options: Options) -> str | None:
        for pattern in self._patterns(row):
            last = find_last(pattern, text, re.IGNORECASE)
            if last is not None and (chosen := match_exactly(last, options)):
                return chosen
        match self._mode(row):
            case "strict_single_letter_boxed":
                return boxed_letter(text, options)
            case "lenient_boxed":
                return boxed_letter(text, options) or _only_contained(last_boxed(text), options)
            case "lenient_answer_colon":
                first = _ANSWER.search(text)
                return match_exactly(first[1], options) if first else None
            case "lenient_answer_colon_md":
                return _last_marked(text, options)

    def _mode(self, row: TaskRow) -> Mode:
        wanted: Mode = self.mode or row.get("grading_mode") or MODES[0]
        if wanted not in MODES:
            raise permanent_error(f"the task row's `grading_mode` is {wanted!r}, not one of {', '.join(MODES)}")
        return wanted

    def _patterns(self, row: TaskRow) -> list[str]:
        if self.pattern:
            return [self.pattern]
        metadata = row.get("template_metadata")
        given = metadata.get("output_regex") if isinstance(metadata, dict) else None
        patterns = [given] if isinstance(given, str) else given or []
        if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
            raise permanent_error("the task row's `template_metadata.output_regex` must be a text or a list of texts")
        if problem := next((found for one in patterns if (found := pattern_problem(one))), ""):
            raise permanent_error(f"the task row's `template_metadata.output_regex` {problem}")
        return patterns


def read_options(given: object, field: str) -> Options:
    """Return options by letter, from `[{"A": …}, …]`, `{"A": …}` or a list of texts. Raises VerifierError."""
    parts = given if isinstance(given, list) else [given]
    if parts and all(isinstance(part, str) for part in parts) and len(parts) <= len(ascii_uppercase):
        return {letter: str(part) for letter, part in zip(ascii_uppercase, parts, strict=False)}
    options: Options = {}
    for part in parts:
        if not isinstance(part, dict):
            break
        options |= {str(letter).strip().upper(): str(text) for letter, text in part.items()}
    if len(options) < 2:
        raise permanent_error(f'the task row\'s `{field}` must be a list such as [{{"A": "text"}}, {{"B": "text"}}]')
    return options


def boxed_letter(text: str, options: Options) -> str | None:
    """Return the option whose letter is in the last box, alone or before one of `: ) . -`."""
    box = _TEXT.sub(r"\1", last_boxed(text) or "").strip()
    match = _LETTER.fullmatch(box)
    return _unless_hedged(match[1].upper(), box[1:], options) if match and match[1].upper() in options else None


def _unless_hedged(letter: str, rest: str, options: Options) -> str | None:
    """Return the letter, or None if only letters of options follow it: A-B-C is not a choice."""
    words = re.findall(r"\w+", rest)
    alone = all(word.upper() in options or word.lower() in ("or", "and") for word in words)
    if any(word.upper() in options for word in words) and alone:
        return letter if _fold(" ".join(words)) in (_fold(options[letter]), _fold(letter)) else None
    return letter


def match_exactly(answer: str | None, options: Options) -> str | None:
    """Return the option given by its letter alone or its whole text, or None."""
    plain = _TEXT.sub(r"\1", answer or "").strip()
    if plain.upper() in options:
        return plain.upper()
    return next((letter for letter, text in options.items() if _fold(plain) == _fold(text)), None)


def match_option(answer: str, options: Options) -> str | None:
    """Return the option of an answer, or None.

    The answer may also begin with the letter, with other text after it and Markdown around.
    """
    plain = answer.strip().strip("*_`").strip()
    if exact := match_exactly(plain, options):
        return exact
    match = _LEADING.match(plain)
    if not match or match[1].upper() not in options:
        return None
    return _unless_hedged(match[1].upper(), plain[match.end() :], options)


def _fold(text: str) -> str:
    return " ".join(text.lower().split())


def _only_contained(box: str | None, options: Options) -> str | None:
    held = _fold(_TEXT.sub(r"\1", box or ""))
    found = [letter for letter, text in options.items() if _fold(text) and _fold(text) in held]
    return found[0] if len(found) == 1 else None


def _last_marked(text: str, options: Options) -> str | None:
    marked = _ANSWER_MARKED.findall(text)
    if not marked or _AMBIGUOUS.search(marked[-1]):
        return None
    return match_option(marked[-1], options)
