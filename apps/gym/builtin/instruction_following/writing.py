"""Write what follows every constraint of a generated task."""

from typing import Any

# Neither commas, nor marks, nor any word that a task may forbid.
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


def write_text(asked: dict[str, dict[str, Any]]) -> str:
    """`asked` has the arguments of each constraint by its id."""
    words: int = asked.get("length_constraints:number_words", {}).get("num_words", 12)
    count: int = asked.get("length_constraints:number_sentences", {}).get("num_sentences", 2)
    paragraphs: int = asked.get("length_constraints:number_paragraphs", {}).get("num_paragraphs", 1)
    count = max(count, words // 7 + 1, paragraphs)
    sentences = [_SENTENCES[at % len(_SENTENCES)] for at in range(count)]
    # Between the others: side by side they would be the same words over and over.
    for at, aside in enumerate(_asides(asked)):
        sentences.insert((2 * at + 1) % (len(sentences) + 1), aside)
    parts = [" ".join(sentences[at::paragraphs]) for at in range(paragraphs)]
    if "startend:start_checker" in asked:
        parts[0] = f"{asked['startend:start_checker']['start_phrase']} this. {parts[0]}"
    if "detectable_format:title" in asked:
        parts[0] = f"<<A quiet account>>\n{parts[0]}"
    bullets: int = asked.get("detectable_format:number_bullet_lists", {}).get("num_bullets", 0)
    parts[-1] = "\n".join([parts[-1], *(f"* Point number {at + 1}" for at in range(bullets))])
    if "detectable_content:postscript" in asked:
        parts[-1] += "\nP.S. The kettle is still warm."
    if "startend:end_checker" in asked:
        parts[-1] += f"\n{asked['startend:end_checker']['end_phrase']}"
    text = "\n***\n".join(parts)
    return f'"{text}"' if "startend:quotation" in asked else text


def _asides(asked: dict[str, dict[str, Any]]) -> list[str]:
    """A sentence for each constraint that wants certain words or marks."""
    given = []
    if keywords := asked.get("keywords:existence"):
        given.append(f"There is {' and '.join(keywords['keywords'])} in this story.")
    if repeated := asked.get("keywords:frequency"):
        given += [f"Day {at + 1} brings one more {repeated['keyword']}." for at in range(repeated["frequency"])]
    if highlights := asked.get("detectable_format:number_highlighted_sections"):
        given += [f"Remember *the point {at + 1}* well." for at in range(highlights["num_highlights"])]
    if placeholders := asked.get("detectable_content:number_placeholders"):
        given += [f"Somewhere stands [name {at + 1}] too." for at in range(placeholders["num_placeholders"])]
    if capitals := asked.get("change_case:capital_word_frequency"):
        given.append(f"The sign says {' '.join(['STOP AND LOOK', *['TWICE'] * capitals['capital_frequency']])}.")
    return given
