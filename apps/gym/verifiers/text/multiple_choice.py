"""Multiple choice: the chosen letter equals the expected one. Modes are those of NeMo Gym's mcqa."""

import re
from collections.abc import Iterator
from functools import lru_cache
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
    pattern_problem,
    permanent_error,
)

Mode = Literal["strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"]
MODES: tuple[Mode, ...] = get_args(Mode)
Options = dict[str, str]

_LATIN = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | str.maketrans("أبجدঅবডঢ", "ABCDABCD")
"""Full-width characters to ASCII, and the letters of options in Arabic and Bengali, as in NeMo Gym."""
_BOX = re.compile(r"\\boxed\s*\{")
_PLAIN_BOX = re.compile(r"([^{}\\]*)\}")
_WRAPPER = re.compile(r"\\(?:text[a-z]*|math(?:rm|bf|it|sf|tt)|mbox|fbox|boldsymbol|underline|emph)\s*\{([^{}]*)\}")
_MARKUP = re.compile(
    r"(?<![\w*_`])[*_`]++|(?<![*_`])[*_`]++(?!\w)|[$\"“”]|\\(?:(?:left|right|quad|bf|rm)\b|[()\[\],;!])"
)
_MARKED = re.compile(r'[*_`$"“”\\]')
"""A character that every wrapper or markup has."""
_ANSWER = re.compile(r"answer(?<![^\W_]answer)[*_]{0,3}\s{0,4}:(?:\\\[|[\s*_$]){0,9}(?=\S)", re.IGNORECASE)
_REJECTED = re.compile(r"\b(?:wrong|incorrect|false|not|other|previous)\W+(?:\w+\W+){0,2}$", re.IGNORECASE)
_LEAD_IN = re.compile(
    r"(?:(?:(?:the |my )?(?:final |correct |right |best )?(?:answer|option|choice|letter)"
    r"(?: is\b|\s?:|(?=\s*\(|\s+[a-z]\b))|it(?: is|'s)\b|i (?:choose|pick|select)\b|final\s?:)\s*){1,2}"
    r"|[a-z]\s?=\s*(?=[^a-z]*$)",
    re.IGNORECASE,
)
_LETTER = re.compile(r"(?:[-–•>#]\s+)?[(\[{<【「\s]*([A-Za-z])(?!\w)(.*)", re.DOTALL)
_END = " \t\n.,;:!?…()[]{}<>\\】」"
_LABEL = re.compile(
    r"\s*[:;,)\]}>】」—]|\s*\.(?!\w)|\s+[-–(\[]|[-–](?=\s+\S)|\s+(?:because|since|as|due|which|rather than|instead of"
    r"|not \(?[A-Z]|is (?:the )?(?:correct|right|best|answer))\b"
)
_DENIED = (
    r"\W*(?:(?:which|that|this|it|is|was|clearly|definitely|obviously|probably)\W+){0,3}"
    r"(?i:wrong|incorrect|false|untrue|no|excluded|eliminated|impossible|rejected|ruled out|not it"
    r"|(?:not|isn['’]t) (?:the )?(?:answer|best|correct|right|true)(?: \w+)?)"
    r"(?=\W*$|[,.;]|\s+(?:as|because|since)\b)"
)
_HEDGE = re.compile(
    r"\W*(?:or|and|maybe|perhaps|possibly|but|both|wait|actually|[Nn]o,? wait|[Nn]o(?=[,.;]))\b"
    r"|\W*([A-Za-z])(?!\w|'|-\w\w|\s+(?!or\b|and\b)[a-z])"
    r"|.*?(?:[,;/|]\s*(?:[Oo]ption )?\(?([A-Z])\s?[:)=]|\b[Aa]nswer(?: is\b|\s?:))"
    rf"|{_DENIED}",
    re.DOTALL,
)
_QUALIFIER = re.compile(r"not|no|never|neither|nor|except|without|false|wrong|incorrect|or|and|but|than|[b-z]")
_INSIDE_WORD = re.compile(r"[A-Za-z0-9_'’]|(?<=[ai])\s{1,4}[a-z]{2}")


class MultipleChoice(Verifier, frozen=True, kw_only=True, tag="multiple_choice"):
    """1.0 if the chosen letter is the expected letter, otherwise 0.0.

    The row has `options` ([{"A": "text"}, …], or a list of texts) and `expected_answer`, a letter. If a pattern is set
    and matches, the verifier reads its last match. Otherwise it reads the part of the reply that the mode names:

    strict_single_letter_boxed: the last box. lenient_boxed: the last box, where the text of an option may have words
    around it. lenient_answer_colon: the line after the first "Answer:", or the box in it. lenient_answer_colon_md: the
    same after the last "Answer:", or after the row's `template_metadata.answer_prefix`.

    A choice is a letter alone ("B", "(b)", "Option B", `\\textbf{(B)}`), or a letter before the option's text or before
    a separator and an explanation ("B) Rome", "B, because …"). Except in the strict mode, the whole text of exactly one
    option also counts. Several letters ("B or C"), a letter that is denied ("B: false"), the letter of one option with
    the text of another, and words that begin with a letter ("d-orbital", "a city", "B12") are not choices. An option's
    text counts only as whole words, and with digits only alone: "1" is not in "21" or "1 million".

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
            description="Read before the mode. A letter that begins a word does not count. Case counts unless you "
            "write (?i). Default: `template_metadata.output_regex` of the row, whose case is ignored.",
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
            captured = _last_captured(pattern, text, re.NOFLAG if self.pattern else re.IGNORECASE)
            if chosen := read_choice(captured, options):
                return chosen
            if len(captured) == 1 and captured.isalpha():
                return None
        text = _in_latin(text)
        match self._mode(row):
            case "strict_single_letter_boxed":
                return read_choice(_last_box(text), options, texts=False)
            case "lenient_boxed":
                box = _last_box(text)
                return read_choice(box, options) or _only_contained(box, options)
            case "lenient_answer_colon":
                return read_choice(_answer_line(text, first=True), options)
            case "lenient_answer_colon_md":
                prefix = self._metadata(row).get("answer_prefix")
                chosen = read_choice(_answer_line(text, prefix=str(prefix or "")), options)
                return chosen or (read_choice(_last_box(text), options, texts=False) if prefix else None)

    def _mode(self, row: TaskRow) -> Mode:
        wanted: Mode = self.mode or row.get("grading_mode") or MODES[0]
        if wanted not in MODES:
            raise permanent_error(f"the task row's `grading_mode` is {wanted!r}, not one of {', '.join(MODES)}")
        return wanted

    def _metadata(self, row: TaskRow) -> dict[str, Any]:
        metadata = row.get("template_metadata")
        return metadata if isinstance(metadata, dict) else {}

    def _patterns(self, row: TaskRow) -> list[str]:
        if self.pattern:
            return [self.pattern]
        given = self._metadata(row).get("output_regex")
        if not given:
            return []
        patterns = [given] if isinstance(given, str) else given
        if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
            raise permanent_error("the task row's `template_metadata.output_regex` must be a text or a list of texts")
        if problem := next((found for one in patterns if (found := pattern_problem(one))), ""):
            raise permanent_error(f"the task row's `template_metadata.output_regex` {problem}")
        return patterns


def read_options(given: object, field: str) -> Options:
    """Return options by letter, from `[{"A": …}, …]`, `{"A": …}` or a list of texts. Raises VerifierError."""
    parts = given if isinstance(given, list) else [given]
    if (
        parts
        and isinstance(parts[0], str)
        and all(isinstance(part, str) for part in parts)
        and len(parts) <= len(ascii_uppercase)
    ):
        return {letter: str(part) for letter, part in zip(ascii_uppercase, parts, strict=False)}
    options: Options = {}
    for part in parts:
        if not isinstance(part, dict):
            break
        for letter, text in part.items():
            options[str(letter).strip().upper()] = str(text)
    if len(options) < 2:
        raise permanent_error(f'the task row\'s `{field}` must be a list such as [{{"A": "text"}}, {{"B": "text"}}]')
    return options


def read_choice(answer: str, options: Options, *, texts: bool = True) -> str | None:
    """Return the option that an answer names by its letter or, with `texts`, by its whole text; None if unclear."""
    plain = _without_markup(answer)
    if len(plain) == 1 and plain in options:
        return plain
    lead_in = _LEAD_IN.match(plain)
    short = plain[lead_in.end() :] if lead_in else plain
    match = _LETTER.match(short)
    letter = match[1].upper() if match else ""
    if short in options or (match and match[1] in options and not match[2].strip(_END)):
        return letter or short
    if named := _by_text(plain, options) or (_by_text(short, options) if lead_in else None):
        return named if texts or named == letter else None
    return letter if match and letter in options and _is_label(letter, match[2], short, options) else None


def _is_label(letter: str, rest: str, whole: str, options: Options) -> bool:
    """Return True if the rest after a letter is empty, the option's text, or an explanation after a separator."""
    told, own = _fold(rest.strip(_END + "-–—/=|")), _fold_option(options[letter])
    if not rest.strip(_END) or told == own or {word.upper() for word in re.findall(r"\w+", rest)} == {letter}:
        return True
    if not _LABEL.match(rest):
        return False
    others = {_fold_option(text) for text in options.values()} - {own, ""}
    folded = _fold(whole)
    if told in others or any(f"{folded} ".startswith(f"{text} ") or f" {folded} " in f" {text} " for text in others):
        return False  # As in "E. coli", the text of another option.
    hedge = _HEDGE.match(rest)
    named = (hedge[1] or hedge[2]) if hedge else None
    return not hedge or (named is not None and named.upper() not in options)


def _by_text(plain: str, options: Options) -> str | None:
    """Return the only option with this text, perhaps with its letter in brackets. Case counts only between options."""
    folded, same = _fold(plain), []
    for letter, text in options.items() if folded else ():
        own = _fold_option(text)
        if folded == own or (folded[-1:] == ")" and folded == f"{own} ({letter.lower()})"):
            same.append(letter)
    if len(same) > 1:
        same = [letter for letter in same if plain == _without_markup(options[letter])]
    return same[0] if len(same) == 1 else None


def _only_contained(box: str, options: Options) -> str | None:
    """Return the only option whose text is in the box, among words that do not qualify it. Numbers do not count."""
    plain = _without_markup(box)
    label = _LETTER.match(plain)
    if label and label[1].upper() in options and _LABEL.match(label[2]):
        return None
    held = f" {_words(_fold(plain))} "
    texts = {letter: f" {_words(_fold_option(text))} " for letter, text in options.items()}
    found = [letter for letter, text in texts.items() if text.strip() and text in held]
    around = held.replace(texts[found[0]], " ").split() if found else []
    if around and re.search(r"\d", texts[found[0]]):
        return None
    if any(not word.isalpha() or _QUALIFIER.fullmatch(word) for word in around):
        return None
    return found[0] if len(found) == 1 else None


def _last_captured(pattern: str, text: str, flags: re.RegexFlag) -> str:
    """Return the last match or its first group, without letters that begin a word, as in "the answer is increasing"."""
    for match in reversed(list(re.finditer(pattern, text, flags))):
        group = 1 if match.re.groups else 0
        found = _in_latin(match[group] or "").strip()
        if len(found) != 1 or not _INSIDE_WORD.match(text, match.end(group)):
            return found
    return ""


def _last_box(text: str) -> str:
    """Return the content of the last box; an empty text if there is none, or if it does not end."""
    opened = _BOX.match(text, max(0, text.rfind("\\boxed")))
    if opened and (plain := _PLAIN_BOX.match(text, opened.end())):
        return plain[1].strip()
    *before, inside = _BOX.split(text)
    return last_boxed(f"\\boxed{{{inside}") or "" if before else ""


def _answer_line(text: str, *, first: bool = False, prefix: str = "") -> str:
    """Return the line after the first or last "Answer:" or prefix, or the box in it. "Wrong answer:" does not count."""
    own = [re.compile(re.escape(_in_latin(prefix)) + r"[\s*_]{0,9}", re.IGNORECASE)] if prefix else []
    matches = [match for marker in (_ANSWER, *own) for match in marker.finditer(text)]
    ends = [one.end() for one in matches if not _REJECTED.search(text[max(0, one.start() - 60) : one.start()])]
    if not ends:
        return ""
    after = text[min(ends) if first else max(ends) :]
    line = after.partition("\n")[0]
    return _last_box(line) or ("\\boxed" in line and _last_box(after)) or line


def _without_markup(text: str) -> str:
    plain = _in_latin(text)
    if _MARKED.search(plain):
        inner, depth = 1, 0
        while inner and depth < 3:  # Wrappers may be in wrappers.
            plain, inner = _WRAPPER.subn(r"\1", plain)
            depth += 1
        plain = _MARKUP.sub("", plain)
    plain = plain.strip()
    return plain[1:-1].strip() if len(plain) > 2 and plain[0] in "'‘" and plain[-1] in "'’" else plain


def _in_latin(text: str) -> str:
    return text if text.isascii() else text.translate(_LATIN)


def _fold(plain: str) -> str:
    return " ".join(plain.lower().split()).removesuffix(".")


# A verdict compares each option several times, and a task has several attempts.
@lru_cache(maxsize=512)
def _fold_option(text: str) -> str:
    return _fold(_without_markup(text))


def _words(folded: str) -> str:
    return " ".join(word.strip(_END) for word in folded.split())
