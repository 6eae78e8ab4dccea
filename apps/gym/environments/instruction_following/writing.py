"""Write texts that satisfy given constraints, or all constraints of a task."""

from itertools import product

import msgspec

from apps.gym.environments.instruction_following.constraints import Check
from apps.gym.environments.instruction_following.environment import is_varied
from apps.gym.verifiers.instructions.ifeval_checks import CONSTRAINTS

_MOST_SENTENCES = 60
# These contain no commas, no other marks, and no word that a task may forbid.
_SENTENCES = (
    "The light comes in early and touches the far wall.",
    "Somebody opens a door and lets the cold air in.",
    "A cup of tea stands on the table and grows cool.",
    "Nobody speaks for a while and that is fine.",
    "Two birds argue about a crumb near the steps.",
    "The old clock counts its minutes without any hurry.",
    "A neighbour waves and walks on with her dog.",
    "Steam rises slowly from the street after rain.",
    "The smell of wet wood fills every room here.",
    "Children run past and their laughter stays behind.",
    "An open book lies face down beside the lamp.",
    "Far away a machine hums its one low note.",
    "He writes three lines and crosses out the second.",
    "Her hands know the work better than her eyes.",
    "We wait until the last bus has gone by.",
    "The map shows less than we hoped to find.",
    "Bread and salt are placed upon a wooden board.",
    "They agree on a plan and then forget half of it.",
    "Snow begins to fall before anybody looks outside.",
    "Each path leads down to the same small bridge.",
    "A letter arrives that was posted many years ago.",
    "The roof needs care and so does the fence.",
    "Some days ask for patience and give little back.",
    "At noon the square is empty except for shadows.",
)
_BRIEF = (
    "Dogs bark.",
    "Rain falls.",
    "Time passes.",
    "Birds sing.",
    "Doors close.",
    "Tea cools.",
    "Snow melts.",
    "Bells ring.",
    "Winds turn.",
    "Boats leave.",
)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a text. `words` occur as often as they are listed; `sentences` only add length."""

    start: str = ""
    title: bool = False
    words: tuple[str, ...] = ()
    highlights: int = 0
    placeholders: int = 0
    capitals: int = 0
    sentences: int = 0
    brief: bool = False
    paragraphs: int = 1
    bullets: int = 0
    postscript: bool = False
    end: str = ""
    quoted: bool = False


def write_text(plan: Plan) -> str:
    known = _BRIEF if plan.brief else _SENTENCES
    sentences = [known[at % len(known)] for at in range(plan.sentences)]
    things = [
        *(f"one more {word}" for word in plan.words),
        *(f"*point {at + 1}*" for at in range(plan.highlights)),
        *(f"[name {at + 1}]" for at in range(plan.placeholders)),
        *(["STOP", "LOOK", "TURN", "WAIT"][at % 4] for at in range(plan.capitals)),
    ]
    if things:
        sentences.insert(1, f"There is {' and '.join(things)}.")
    if plan.start:
        first = sentences[0] if sentences else "It was so."
        sentences[:1] = [f"{plan.start} {first[0].lower()}{first[1:]}"]
    if plan.end:
        sentences.append(plan.end)
    parts = [
        sentences[at * len(sentences) // plan.paragraphs : (at + 1) * len(sentences) // plan.paragraphs]
        for at in range(plan.paragraphs)
    ]
    last = parts[-1][-1:] if plan.end else []
    before = parts[-1][: len(parts[-1]) - len(last)]
    lines = [" ".join(before), *(f"* Point {at + 1}" for at in range(plan.bullets)), *last]
    lines += ["P.S. The tea is still warm."] if plan.postscript else []
    told = [*(" ".join(part) for part in parts[:-1]), "\n".join(line for line in lines if line)]
    text = "\n***\n".join(told)
    text = f"<<A quiet account>>\n{text}" if plan.title else text
    return f'"{text}"' if plan.quoted else text


def write_answer(checks: list[Check]) -> str:
    """Return a text that satisfies all checks, in brief sentences if others are too long.

    Raises ValueError if there is none.
    """
    plan = _plan(checks)
    for brief, sentences in product((False, True), range(_MOST_SENTENCES)):
        text = write_text(msgspec.structs.replace(plan, sentences=sentences, brief=brief))
        if is_varied(text) and all(CONSTRAINTS[name].follows(text, given) for name, given in checks):
            return text
    raise ValueError(f"no text follows all of {checks}")


def _plan(checks: list[Check]) -> Plan:
    # Of two checks of the same property, the first gives the minimum.
    asked = dict(reversed(checks))

    def of(name: str, argument: str, default: int = 0) -> int:
        return int(asked.get(name, {}).get(argument, default))

    repeated = asked.get("keywords:frequency", {"keyword": "", "frequency": 0})
    return Plan(
        start=asked.get("startend:start_checker", {}).get("start_phrase", ""),
        title="detectable_format:title" in asked,
        words=(
            *asked.get("keywords:existence", {}).get("keywords", []),
            *[repeated["keyword"]] * repeated["frequency"],
        ),
        highlights=of("detectable_format:number_highlighted_sections", "num_highlights"),
        placeholders=of("detectable_content:number_placeholders", "num_placeholders"),
        capitals=of("change_case:capital_word_frequency", "capital_frequency"),
        paragraphs=of("length_constraints:number_paragraphs", "num_paragraphs", 1),
        bullets=of("detectable_format:number_bullet_lists", "num_bullets"),
        postscript="detectable_content:postscript" in asked,
        end=asked.get("startend:end_checker", {}).get("end_phrase", ""),
        quoted="startend:quotation" in asked,
    )
