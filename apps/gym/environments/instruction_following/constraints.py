"""Constraints for tasks: each has the text of its instruction, and the ids and arguments of its checks.

No fixed text may satisfy all tasks. For some constraints a fixed text satisfies only a small share of draws, given by
`chance`: exact counts, first and last words. `kit` uses it.
"""

import random
from collections.abc import Callable, Sequence
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
    "anchor", "basket", "candle", "curtain", "drawer", "engine", "feather", "garden", "harvest", "island",
    "kettle", "ladder", "market", "needle", "orchard", "pepper", "quarry", "ribbon", "saddle", "tunnel",
    "valley", "window",
)  # fmt: skip
FORBIDDEN = (
    "very", "really", "amazing", "because", "however", "important", "beautiful", "perfect", "finally",
    "simply", "often", "people",
)  # fmt: skip
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


Maker = Callable[[random.Random, str], Asked]
"""Draw a constraint for a topic."""


def _kind(
    about: set[str],
    text: str,
    check: str,
    argument: str = "",
    options: Sequence[Any] = (),
    *,
    exact: bool = False,
    **given: Any,
) -> Maker:
    """Return a maker whose constraint has one check, with one of the options as argument and in the text.

    With `exact`, a fixed text satisfies only one of the options.
    """

    def make(dice: random.Random, topic: str) -> Asked:
        if not options:
            return Asked(about, text, [(check, given)])
        drawn = dice.choice(options)
        return Asked(
            about,
            text.format(drawn),
            [(check, {argument: drawn, **given})],
            chance=1 / len(options) if exact else 1.0,
        )

    return make


def _exactly(name: str, given: dict[str, Any], count: str, number: int) -> list[Check]:
    """Return two checks, because IFEval has only the relations at least and less than."""
    return [
        (name, {**given, count: number, "relation": "at least"}),
        (name, {**given, count: number + 1, "relation": "less than"}),
    ]


def _some_words(dice: random.Random, topic: str) -> Asked:
    starts = range(60, 181, 5)
    least = dice.choice(starts)
    checks: list[Check] = [
        ("length_constraints:number_words", {"num_words": least, "relation": "at least"}),
        ("length_constraints:number_words", {"num_words": least + WINDOW + 1, "relation": "less than"}),
    ]
    told = f"Use between {least} and {least + WINDOW} words."
    return Asked({"length"}, told, checks, chance=(WINDOW // starts.step + 1) / len(starts))


def _all_sentences(dice: random.Random, topic: str) -> Asked:
    counts = range(6, 21)
    count = dice.choice(counts)
    checks = _exactly("length_constraints:number_sentences", {}, "num_sentences", count)
    # It would be ambiguous whether a title, a bullet point or a postscript counts as a sentence.
    about = {"length", "bullets", "title", "postscript"}
    return Asked(about, f"Write exactly {count} sentences.", checks, chance=1 / len(counts))


def _keywords(dice: random.Random, topic: str) -> Asked:
    words = [TOPICS[topic], *dice.sample(KEYWORDS, 2)]
    return Asked({"keywords"}, f"Use the words {', '.join(words)}.", [("keywords:existence", {"keywords": words})])


def _frequency(dice: random.Random, topic: str) -> Asked:
    word, counts = dice.choice(KEYWORDS), range(2, 7)
    count = dice.choice(counts)
    checks = _exactly("keywords:frequency", {"keyword": word}, "frequency", count)
    return Asked({"keywords"}, f"Use the word {word} exactly {count} times.", checks, chance=1 / len(counts))


def _forbidden(dice: random.Random, topic: str) -> Asked:
    words = dice.sample(FORBIDDEN, 3)
    told = f"Do not use any of the words {', '.join(words)}."
    return Asked({"forbidden"}, told, [("keywords:forbidden_words", {"forbidden_words": words})])


MAKERS: tuple[Maker, ...] = (
    _kind(
        {"length"},
        "Use at least {} words.",
        "length_constraints:number_words",
        "num_words",
        range(30, 161, 5),
        relation="at least",
    ),
    _some_words,
    _kind(
        {"length"},
        "Write at least {} sentences.",
        "length_constraints:number_sentences",
        "num_sentences",
        range(3, 13),
        relation="at least",
    ),
    _all_sentences,
    _keywords,
    _frequency,
    _forbidden,
    _kind(
        {"bullets"},
        "Include exactly {} bullet points, in Markdown: each a line that begins with an asterisk and a space.",
        "detectable_format:number_bullet_lists",
        "num_bullets",
        range(2, 10),
        exact=True,
    ),
    _kind(
        {"paragraphs"},
        "Write {} paragraphs, with a line of three asterisks between each two.",
        "length_constraints:number_paragraphs",
        "num_paragraphs",
        range(2, 7),
        exact=True,
    ),
    _kind(
        {"highlights"},
        "Highlight at least {} passages with Markdown, as in *a highlighted passage*.",
        "detectable_format:number_highlighted_sections",
        "num_highlights",
        range(2, 5),
    ),
    _kind(
        {"placeholders"},
        "Leave at least {} placeholders in square brackets, such as [name].",
        "detectable_content:number_placeholders",
        "num_placeholders",
        range(2, 5),
    ),
    _kind(
        {"opening", "title"},
        "Give it a title, in double angle brackets, on its first line.",
        "detectable_format:title",
    ),
    _kind({"opening"}, 'Begin with the words "{}".', "startend:start_checker", "start_phrase", STARTS, exact=True),
    _kind(
        {"end"},
        'End with the sentence "{}", and nothing after it.',
        "startend:end_checker",
        "end_phrase",
        ENDS,
        exact=True,
    ),
    _kind(
        # A fixed ending excludes a postscript.
        {"end", "postscript"},
        "Add a postscript after the text, which begins with P.S.",
        "detectable_content:postscript",
        postscript_marker="P.S.",
    ),
    _kind(
        {"capitals"},
        "Write at least {} words in capital letters only.",
        "change_case:capital_word_frequency",
        "capital_frequency",
        range(3, 9),
        capital_relation="at least",
    ),
    _kind({"commas"}, "Use no comma.", "punctuation:no_comma"),
    _kind({"quotation"}, "Put the whole reply into double quotation marks.", "startend:quotation"),
)
