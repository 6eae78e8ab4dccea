"""Constraints to ask for: each with the words that ask and the id and arguments that check."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

TOPICS = (
    "a morning at the harbour",
    "how bread is baked",
    "the first day at a new school",
    "a bicycle tour through the hills",
    "why cities plant trees",
    "a visit to the dentist",
    "how to plan a small garden",
    "the history of the umbrella",
    "learning to swim as an adult",
    "a night train to the coast",
    "the work of a librarian",
    "keeping bees on a roof",
    "what makes a good neighbour",
    "a power cut in winter",
    "repairing an old radio",
    "the sound of a quiet house",
    "moving to another country",
    "cooking for twenty guests",
    "a lost suitcase",
    "the rules of a board game",
)
KEYWORDS = (
    "anchor basket candle curtain drawer engine feather garden harvest island kettle ladder market needle orchard "
    "pepper quarry ribbon saddle tunnel valley window"
)
FORBIDDEN = "very really amazing because however important beautiful perfect finally simply often people"
STARTS = ("To begin with", "Here is what happened", "Let me tell you", "Once upon a time", "It all started quietly")
ENDS = ("That is all for today.", "Thank you for reading.", "More will follow soon.", "Nothing else is needed.")


class Asked(NamedTuple):
    """`group` names what it is about: a task asks one of each group at most."""

    group: str
    text: str
    id: str
    arguments: dict[str, Any]


def _words(listed: str) -> list[str]:
    return listed.split()


def _length(dice: random.Random) -> Asked:
    if dice.random() < 0.5:
        least = dice.randrange(30, 161, 5)
        return Asked(
            "length",
            f"Use at least {least} words.",
            "length_constraints:number_words",
            {"num_words": least, "relation": "at least"},
        )
    least = dice.randint(3, 12)
    return Asked(
        "length",
        f"Write at least {least} sentences.",
        "length_constraints:number_sentences",
        {"num_sentences": least, "relation": "at least"},
    )


def _keywords(dice: random.Random) -> Asked:
    words = dice.sample(_words(KEYWORDS), 3)
    return Asked("keywords", f"Use the words {', '.join(words)}.", "keywords:existence", {"keywords": words})


def _frequency(dice: random.Random) -> Asked:
    word, least = dice.choice(_words(KEYWORDS)), dice.randint(3, 6)
    return Asked(
        "keywords",
        f"Use the word {word} at least {least} times.",
        "keywords:frequency",
        {"keyword": word, "frequency": least, "relation": "at least"},
    )


def _forbidden(dice: random.Random) -> Asked:
    words = dice.sample(_words(FORBIDDEN), 3)
    return Asked(
        "forbidden",
        f"Do not use any of the words {', '.join(words)}.",
        "keywords:forbidden_words",
        {"forbidden_words": words},
    )


def _bullets(dice: random.Random) -> Asked:
    count = dice.randint(2, 6)
    return Asked(
        "bullets",
        f"Include exactly {count} bullet points, in Markdown: each a line that begins with an asterisk and a space.",
        "detectable_format:number_bullet_lists",
        {"num_bullets": count},
    )


def _paragraphs(dice: random.Random) -> Asked:
    count = dice.randint(2, 5)
    return Asked(
        "paragraphs",
        f"Write {count} paragraphs, with a line of three asterisks between each two.",
        "length_constraints:number_paragraphs",
        {"num_paragraphs": count},
    )


def _highlights(dice: random.Random) -> Asked:
    count = dice.randint(2, 4)
    return Asked(
        "highlights",
        f"Highlight at least {count} passages with Markdown, as in *a highlighted passage*.",
        "detectable_format:number_highlighted_sections",
        {"num_highlights": count},
    )


def _placeholders(dice: random.Random) -> Asked:
    count = dice.randint(2, 4)
    return Asked(
        "placeholders",
        f"Leave at least {count} placeholders in square brackets, such as [name].",
        "detectable_content:number_placeholders",
        {"num_placeholders": count},
    )


def _title(dice: random.Random) -> Asked:
    return Asked(
        "opening", "Give it a title, in double angle brackets, on its first line.", "detectable_format:title", {}
    )


def _start(dice: random.Random) -> Asked:
    phrase = dice.choice(STARTS)
    return Asked("opening", f'Begin with the words "{phrase}".', "startend:start_checker", {"start_phrase": phrase})


def _end(dice: random.Random) -> Asked:
    phrase = dice.choice(ENDS)
    return Asked(
        "end",
        f'End with the sentence "{phrase}", and nothing after it.',
        "startend:end_checker",
        {"end_phrase": phrase},
    )


def _postscript(dice: random.Random) -> Asked:
    return Asked(
        # An end that is given leaves no place for it.
        "end",
        "Add a postscript after the text, which begins with P.S.",
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
    )


def _capitals(dice: random.Random) -> Asked:
    count = dice.randint(3, 8)
    return Asked(
        "capitals",
        f"Write at least {count} words in capital letters only.",
        "change_case:capital_word_frequency",
        {"capital_frequency": count, "capital_relation": "at least"},
    )


def _no_comma(dice: random.Random) -> Asked:
    return Asked("commas", "Use no comma.", "punctuation:no_comma", {})


def _quotation(dice: random.Random) -> Asked:
    return Asked("quotation", "Put the whole reply into double quotation marks.", "startend:quotation", {})


MAKERS: tuple[Callable[[random.Random], Asked], ...] = (
    _length,
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
