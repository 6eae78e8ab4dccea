"""Checks of instruction constraints, by the ids of IFEval (Zhou et al. 2023, arXiv:2311.07911), and two more.

Each takes the reply and its arguments, and returns True if the reply follows. Every pattern takes linear time.
"""

import json
import operator
import re
import unicodedata
from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

MAX_READ = 20_000
"""Maximum characters read: the first few pages show the language of the text."""


MIN_LETTERS = 20
"""Minimum letters to detect a language. Of shorter texts, langdetect gets up to half wrong."""

_OTHER_SCRIPTS = frozenset(
    "ar bg bn el fa gu he hi ja kn ko mk ml mr ne pa ru ta te th uk ur zh zh-cn zh-tw".split()  # noqa: SIM905
)
"""Languages that are not written in Latin letters."""
_CODES = """
af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr ne nl no pa pl pt ro ru sk
sl so sq sv sw ta te th tl tr uk ur vi zh zh-cn zh-tw
"""
LANGUAGES = frozenset(_CODES.split())
"""The codes of langdetect, and `zh` for both kinds of Chinese."""

_ALIASES = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "fil": "tl"}
_CHINESE = {"hans": "zh-cn", "cn": "zh-cn", "sg": "zh-cn", "hant": "zh-tw", "tw": "zh-tw", "hk": "zh-tw", "mo": "zh-tw"}
_EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_JAPANESE_OR_KOREAN = re.compile(r"[\u3040-\u30ff\uac00-\ud7a3]")
_HAN = re.compile(r"[\u3400-\u9fff]")


def language_code(given: object) -> str:
    """Return one of LANGUAGES for a code with or without a region: en for en-US, zh-tw for zh-Hant. Else the code."""
    base, *regions = str(given).strip().lower().replace("_", "-").split("-")
    if base == "zh":
        return next((_CHINESE[region] for region in regions if region in _CHINESE), "zh")
    return _ALIASES.get(base, base)


def detect_language(text: str) -> str:
    """Return one of LANGUAGES, or an empty text without evidence: digits, or fewer than MIN_LETTERS letters.

    A Chinese, Japanese or Korean character counts as three letters. langdetect is random. A fixed seed makes its result
    reproducible.
    """
    from langdetect import DetectorFactory, LangDetectException, detect

    text = text[:MAX_READ]
    if sum(map(str.isalpha, text)) + 2 * len(_EAST_ASIAN.findall(text)) < MIN_LETTERS:
        return ""
    factory: Any = DetectorFactory
    factory.seed = 0
    try:
        # Its profiles know few words in capitals.
        found = str(detect(text.lower() if text.isupper() else text))
    except LangDetectException:
        return ""
    # It takes much Chinese for Korean.
    return "zh" if found in ("ko", "ja") and _HAN.search(text) and not _JAPANESE_OR_KOREAN.search(text) else found


Arguments = dict[str, Any]


class Constraint(NamedTuple):
    """A constraint. `needs` are its required arguments; `slow` means that it detects the language."""

    follows: Callable[[str, Arguments], bool]
    needs: frozenset[str] = frozenset()
    slow: bool = False


CONSTRAINTS: dict[str, Constraint] = {}
_AROUND = '"“”*_'
"""Signs allowed around the first or last words: quotation marks and Markdown emphasis."""

_Check = Callable[[str, Arguments], bool]


def _constraint(name: str, *needs: str, slow: bool = False) -> Callable[[_Check], _Check]:
    def register(check: _Check) -> _Check:
        CONSTRAINTS[name] = Constraint(check, frozenset(needs), slow)
        return check

    return register


def _count(
    name: str, wanted: str, count: Callable[[str, Arguments], int], *needs: str, relation: str | None = "relation"
) -> None:
    """Add a constraint on a count. `wanted` is the argument with the number, `relation` the one with the relation."""

    def follows(reply: str, given: Arguments) -> bool:
        return relate(count(reply, given), given[wanted], given.get(relation) if relation else None)

    CONSTRAINTS[name] = Constraint(follows, frozenset({wanted, *needs}))


def whole_number(given: object) -> int:
    """Parse 100, 100.0 and "100". Raises ValueError for others."""
    if isinstance(given, float) and given.is_integer():
        return int(given)
    return int(str(given))


_RELATIONS: dict[object, Callable[[int, int], bool]] = {
    None: operator.ge,
    "at least": operator.ge,
    "less than": operator.lt,
    "at most": operator.le,
    "exactly": operator.eq,
}


def relate(count: int, wanted: object, relation: object) -> bool:
    """Compare a count by `less than`, `at most`, `exactly` or (the default) at least.

    Raises ValueError for other relations.
    """
    number = whole_number(wanted)
    if not isinstance(relation, str | None) or relation not in _RELATIONS:
        raise ValueError(f"the relation {relation!r} is not one of at least, less than, at most, exactly")
    return _RELATIONS[relation](count, number)


def texts(given: object) -> list[str]:
    """Return the texts; null means none."""
    if given is None:
        return []
    return [str(one) for one in given] if isinstance(given, list) else [str(given)]


def _count_word(reply: str, word: str) -> int:
    return len(re.findall(re.escape(word), reply, re.IGNORECASE))


def count_sentences(reply: str) -> int:
    """Count the sentences by their ends.

    A full stop within a number or after a single letter does not end a sentence.
    """
    ends = re.findall(r"(?<![\d\W]\.)(?<!\b\w)[.!?…。！？]+[\"'”’)\]]*(?=\s|$)|[。！？]", reply.strip())
    return max(len(ends) + (not re.search(r"[.!?…。！？][\"'”’)\]]*$", reply.strip())), 1) if reply.strip() else 0


@_constraint("keywords:existence", "keywords")
def _existence(reply: str, given: Arguments) -> bool:
    return all(_count_word(reply, word) for word in texts(given["keywords"]))


_count(
    "keywords:frequency",
    "frequency",
    lambda reply, given: _count_word(reply, str(given["keyword"])),
    "keyword",
)


@_constraint("keywords:forbidden_words", "forbidden_words")
def _forbidden_words(reply: str, given: Arguments) -> bool:
    words = (re.escape(word) for word in texts(given["forbidden_words"]))
    return not any(re.search(rf"\b{word}\b", reply, re.IGNORECASE) for word in words)


_count(
    "keywords:letter_frequency",
    "let_frequency",
    lambda reply, given: reply.lower().count(str(given["letter"]).lower()),
    "letter",
    relation="let_relation",
)


@_constraint("language:response_language", "language", slow=True)
def _response_language(reply: str, given: Arguments) -> bool:
    found, wanted = detect_language(reply), language_code(given["language"])
    letters = [letter for letter in reply if letter.isalpha()]
    if not found and letters:
        # As in IFEval, a text without a detectable language does not break the rule, but its script may.
        is_latin = sum("LATIN" in unicodedata.name(letter, "") for letter in letters) * 2 > len(letters)
        return is_latin == (wanted not in _OTHER_SCRIPTS)
    return found in ("", wanted) or ("zh" in (found, wanted) and found[:2] == wanted[:2])


_count("length_constraints:number_sentences", "num_sentences", lambda reply, _: count_sentences(reply))
_count("length_constraints:number_words", "num_words", lambda reply, _: len(re.findall(r"\w+", reply)))
_count("length_constraints:number_characters", "num_characters", lambda reply, _: len(reply.strip()))


@_constraint("length_constraints:number_paragraphs", "num_paragraphs")
def _number_paragraphs(reply: str, given: Arguments) -> bool:
    """Count the paragraphs between lines of `***`. Only the first and the last may be empty."""
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", reply)]
    return all(parts[1:-1]) and sum(bool(part) for part in parts) == whole_number(given["num_paragraphs"])


@_constraint("length_constraints:nth_paragraph_first_word", "num_paragraphs", "nth_paragraph", "first_word")
def _nth_paragraph_first_word(reply: str, given: Arguments) -> bool:
    """Check the first word of a paragraph. Paragraphs are separated by empty lines."""
    parts = [
        " ".join(lines) for blank, lines in groupby(reply.splitlines(), lambda line: not line.strip()) if not blank
    ]
    nth = whole_number(given["nth_paragraph"])
    if len(parts) != whole_number(given["num_paragraphs"]) or not 1 <= nth <= len(parts):
        return False
    first = re.match(r"[\"'“‘(*_]*([^\s.,?!'\"”’)*_]+)", parts[nth - 1].strip())
    return first is not None and first[1].lower() == str(given["first_word"]).lower()


def _count_brackets(line: str) -> int:
    """Count consecutive `[…]`. Nested ones are part of the outer one."""
    count, at = 0, line.find("[")
    while at >= 0 and (end := line.find("]", at)) >= 0:
        count, at = count + 1, line.find("[", end)
    return count


_count(
    "detectable_content:number_placeholders",
    "num_placeholders",
    lambda reply, _: sum(map(_count_brackets, reply.splitlines())),
    relation=None,
)


@_constraint("detectable_content:postscript", "postscript_marker")
def _postscript(reply: str, given: Arguments) -> bool:
    marker = str(given["postscript_marker"]).strip()
    forms = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(forms.get(marker, re.escape(marker)), reply, re.IGNORECASE) is not None


@_constraint("detectable_format:number_bullet_lists", "num_bullets")
def _number_bullets(reply: str, given: Arguments) -> bool:
    lines = [line.lstrip() for line in reply.splitlines()]
    stars = sum(line.startswith("*") and line[1:2] not in ("", "*") for line in lines)
    return stars + sum(line.startswith("-") for line in lines) == whole_number(given["num_bullets"])


@_constraint("detectable_format:constrained_response")
def _constrained_response(reply: str, given: Arguments) -> bool:
    return any(f"My answer is {word}." in reply for word in ("yes", "no", "maybe"))


def _count_highlights(reply: str) -> int:
    """Count `*one*` and `**two**` separately; `***three***` counts as both."""
    found = re.findall(r"\*([^\n*]*)\*", reply) + re.findall(r"\*\*([^\n*]*)\*\*", reply)
    return sum(bool(text.strip()) for text in found)


_count(
    "detectable_format:number_highlighted_sections",
    "num_highlights",
    lambda reply, _: _count_highlights(reply),
    relation=None,
)
_count(
    "detectable_format:multiple_sections",
    "num_sections",
    lambda reply, given: len(re.findall(rf"{re.escape(str(given['section_spliter']).strip())}\s?\d+", reply)),
    "section_spliter",
    relation=None,
)


@_constraint("detectable_format:json_format")
def _json_format(reply: str, given: Arguments) -> bool:
    text = reply.strip()
    for fence in ("```json", "```JSON", "```Json", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```"))
    except (ValueError, RecursionError):
        return False
    return True


def _has_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end and bool(line[start:end].lstrip("<").rstrip(">").strip())


@_constraint("detectable_format:title")
def _title(reply: str, given: Arguments) -> bool:
    return any(map(_has_title, reply.splitlines()))


@_constraint("combination:two_responses")
def _two_responses(reply: str, given: Arguments) -> bool:
    parts = [part.strip() for part in reply.split("******")]
    told = [part for part in parts if part]
    return all(parts[1:-1]) and len(told) == 2 and told[0] != told[1]


@_constraint("combination:repeat_prompt", "prompt_to_repeat")
def _repeat_prompt(reply: str, given: Arguments) -> bool:
    return reply.strip().lower().startswith(str(given["prompt_to_repeat"]).strip().lower())


@_constraint("startend:start_checker", "start_phrase")
def _start(reply: str, given: Arguments) -> bool:
    phrase = str(given["start_phrase"]).strip().lower()
    text = reply.strip().lower()
    return text.startswith(phrase) or text.lstrip(_AROUND).startswith(phrase)


@_constraint("startend:end_checker", "end_phrase")
def _end(reply: str, given: Arguments) -> bool:
    phrase = str(given["end_phrase"]).strip().lower()
    text = reply.strip().lower()
    return text.endswith(phrase) or text.rstrip(_AROUND).endswith(phrase)


@_constraint("startend:quotation")
def _quotation(reply: str, given: Arguments) -> bool:
    text = reply.strip()
    return len(text) > 1 and text[0] + text[-1] in ('""', "“”")


_count(
    "change_case:capital_word_frequency",
    "capital_frequency",
    lambda reply, _: sum(word.isupper() for word in re.findall(r"\w[\w'’-]*", reply)),
    relation="capital_relation",
)


@_constraint("change_case:english_capital", slow=True)
def _english_capital(reply: str, given: Arguments) -> bool:
    return reply.isupper() and detect_language(reply) in ("", "en")


@_constraint("change_case:english_lowercase", slow=True)
def _english_lowercase(reply: str, given: Arguments) -> bool:
    return reply.islower() and detect_language(reply) in ("", "en")


@_constraint("punctuation:no_comma")
def _no_comma(reply: str, given: Arguments) -> bool:
    return "," not in reply
