"""Constraints for tasks: each has the text of its instruction, and the ids and arguments of its checks.

No fixed text may satisfy all tasks. For some constraints a fixed text satisfies only a small share of draws, given by
`chance`: exact counts, first and last words. `kit` uses it.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

TOPICS = {
    "a morning at the harbour": "harbour",
    "how bread is baked": "bread",
    "the first day at a new school": "school",
    "a bicycle tour through the hills": "bicycle",
    "why cities plant trees": "tree",
    "a visit to the dentist": "dentist",
    "how to plan a small garden": "flower",
    "the history of the umbrella": "umbrella",
    "learning to swim as an adult": "water",
    "a night train to the coast": "train",
    "the work of a librarian": "book",
    "keeping bees on a roof": "honey",
    "what makes a good neighbour": "neighbour",
    "a power cut in winter": "winter",
    "repairing an old radio": "radio",
    "the sound of a quiet house": "silence",
    "moving to another country": "country",
    "cooking for twenty guests": "kitchen",
    "a lost suitcase": "suitcase",
    "the rules of a board game": "player",
}
"""Topics, each with a related word."""
KEYWORDS = (
    "anchor basket candle curtain drawer engine feather garden harvest island kettle ladder market needle orchard "
    "pepper quarry ribbon saddle tunnel valley window"
)
FORBIDDEN = "very really amazing because however important beautiful perfect finally simply often people"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
STARTS = tuple(
    f"{day_of} {day} {time}"
    for day_of in ("On a", "One cold", "One bright")
    for day in _DAYS
    for time in ("morning", "afternoon", "evening")
)
ENDS = tuple(
    f"{what} {day}."
    for what in ("That was all for", "More will follow on", "We meet again on", "Nothing else happened before")
    for day in _DAYS
)
WINDOW = 15

Check = tuple[str, dict[str, Any]]
"""An id and its arguments."""


class Asked(NamedTuple):
    """A constraint of a task.

    `about` is its subjects: a task has at most one constraint per subject, so that counts are unambiguous.

    `chance` is the largest share of draws that one fixed text satisfies.
    """

    about: set[str]
    text: str
    checks: list[Check]
    chance: float = 1.0


def _words(listed: str) -> list[str]:
    return listed.split()


def _exactly(name: str, given: dict[str, Any], count: str, number: int) -> list[Check]:
    """Return two checks, because IFEval has only the relations at least and less than."""
    return [
        (name, {**given, count: number, "relation": "at least"}),
        (name, {**given, count: number + 1, "relation": "less than"}),
    ]


def _least_words(dice: random.Random, topic: str) -> Asked:
    least = dice.randrange(30, 161, 5)
    checks: list[Check] = [("length_constraints:number_words", {"num_words": least, "relation": "at least"})]
    return Asked({"length"}, f"Use at least {least} words.", checks)


def _some_words(dice: random.Random, topic: str) -> Asked:
    starts = range(60, 181, 5)
    least = dice.choice(starts)
    checks: list[Check] = [
        ("length_constraints:number_words", {"num_words": least, "relation": "at least"}),
        ("length_constraints:number_words", {"num_words": least + WINDOW + 1, "relation": "less than"}),
    ]
    told = f"Use between {least} and {least + WINDOW} words."
    return Asked({"length"}, told, checks, chance=(WINDOW // starts.step + 1) / len(starts))


def _least_sentences(dice: random.Random, topic: str) -> Asked:
    least = dice.randint(3, 12)
    checks: list[Check] = [("length_constraints:number_sentences", {"num_sentences": least, "relation": "at least"})]
    return Asked({"length"}, f"Write at least {least} sentences.", checks)


def _all_sentences(dice: random.Random, topic: str) -> Asked:
    counts = range(6, 21)
    count = dice.choice(counts)
    checks = _exactly("length_constraints:number_sentences", {}, "num_sentences", count)
    # It would be ambiguous whether a title, a bullet point or a postscript counts as a sentence.
    about = {"length", "bullets", "title", "postscript"}
    return Asked(about, f"Write exactly {count} sentences.", checks, chance=1 / len(counts))


def _keywords(dice: random.Random, topic: str) -> Asked:
    words = [TOPICS[topic], *dice.sample(_words(KEYWORDS), 2)]
    return Asked({"keywords"}, f"Use the words {', '.join(words)}.", [("keywords:existence", {"keywords": words})])


def _frequency(dice: random.Random, topic: str) -> Asked:
    word, counts = dice.choice(_words(KEYWORDS)), range(2, 7)
    count = dice.choice(counts)
    checks = _exactly("keywords:frequency", {"keyword": word}, "frequency", count)
    return Asked({"keywords"}, f"Use the word {word} exactly {count} times.", checks, chance=1 / len(counts))


def _forbidden(dice: random.Random, topic: str) -> Asked:
    words = dice.sample(_words(FORBIDDEN), 3)
    told = f"Do not use any of the words {', '.join(words)}."
    return Asked({"forbidden"}, told, [("keywords:forbidden_words", {"forbidden_words": words})])


def _bullets(dice: random.Random, topic: str) -> Asked:
    counts = range(2, 10)
    count = dice.choice(counts)
    told = f"Include exactly {count} bullet points, in Markdown: each a line that begins with an asterisk and a space."
    checks: list[Check] = [("detectable_format:number_bullet_lists", {"num_bullets": count})]
    return Asked({"bullets"}, told, checks, chance=1 / len(counts))


def _paragraphs(dice: random.Random, topic: str) -> Asked:
    counts = range(2, 7)
    count = dice.choice(counts)
    told = f"Write {count} paragraphs, with a line of three asterisks between each two."
    checks: list[Check] = [("length_constraints:number_paragraphs", {"num_paragraphs": count})]
    return Asked({"paragraphs"}, told, checks, chance=1 / len(counts))


def _highlights(dice: random.Random, topic: str) -> Asked:
    count = dice.randint(2, 4)
    told = f"Highlight at least {count} passages with Markdown, as in *a highlighted passage*."
    return Asked({"highlights"}, told, [("detectable_format:number_highlighted_sections", {"num_highlights": count})])


def _placeholders(dice: random.Random, topic: str) -> Asked:
    count = dice.randint(2, 4)
    told = f"Leave at least {count} placeholders in square brackets, such as [name]."
    return Asked({"placeholders"}, told, [("detectable_content:number_placeholders", {"num_placeholders": count})])


def _title(dice: random.Random, topic: str) -> Asked:
    told = "Give it a title, in double angle brackets, on its first line."
    return Asked({"opening", "title"}, told, [("detectable_format:title", {})])


def _start(dice: random.Random, topic: str) -> Asked:
    phrase = dice.choice(STARTS)
    checks: list[Check] = [("startend:start_checker", {"start_phrase": phrase})]
    return Asked({"opening"}, f'Begin with the words "{phrase}".', checks, chance=1 / len(STARTS))


def _end(dice: random.Random, topic: str) -> Asked:
    phrase = dice.choice(ENDS)
    checks: list[Check] = [("startend:end_checker", {"end_phrase": phrase})]
    told = f'End with the sentence "{phrase}", and nothing after it.'
    return Asked({"end"}, told, checks, chance=1 / len(ENDS))


def _postscript(dice: random.Random, topic: str) -> Asked:
    told = "Add a postscript after the text, which begins with P.S."
    # A fixed ending excludes a postscript.
    return Asked({"end", "postscript"}, told, [("detectable_content:postscript", {"postscript_marker": "P.S."})])


def _capitals(dice: random.Random, topic: str) -> Asked:
    count = dice.randint(3, 8)
    checks: list[Check] = [
        ("change_case:capital_word_frequency", {"capital_frequency": count, "capital_relation": "at least"})
    ]
    return Asked({"capitals"}, f"Write at least {count} words in capital letters only.", checks)


def _no_comma(dice: random.Random, topic: str) -> Asked:
    return Asked({"commas"}, "Use no comma.", [("punctuation:no_comma", {})])


def _quotation(dice: random.Random, topic: str) -> Asked:
    return Asked({"quotation"}, "Put the whole reply into double quotation marks.", [("startend:quotation", {})])


MAKERS: tuple[Callable[[random.Random, str], Asked], ...] = (
    _least_words,
    _some_words,
    _least_sentences,
    _all_sentences,
    _keywords,
    _frequency,
    _forbidden,
    _bullets,
    _paragraphs,
    _highlights,
    _placeholders,
    _title,
    _start,
    _end,
    _postscript,
    _capitals,
    _no_comma,
    _quotation,
)
