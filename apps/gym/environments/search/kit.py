"""Tasks, players and cases of search: a player that knows the entries, and one that guesses."""

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from apps.gym.environments.search.world import World, draw_world, write_documents
from apps.gym.environments.task_generation import LEVELS, Call, Case, Difficulty, Kit, Move, Player, Seen, ask, say
from apps.gym.traces.items import TaskRow


class Question(NamedTuple):
    """A question. `sources` are the ids of the entries to read, each of which leads to the next."""

    text: str
    answer: str
    sources: tuple[str, ...]


_FACTS = {
    "t": {"founded": "In which year was {} founded?", "river": "Which river flows through {}?"},
    "p": {"born": "In which year was {} born?", "kind": "What was the profession of {}?"},
    "h": {"founded": "In which year was {} founded?"},
    "w": {"year": "In which year was {} finished?"},
    "f": {"began": "In which year did {} begin?", "month": "In which month does {} take place?"},
}
"""The questions about an entity of each kind, by its facts."""
_LINKS = {
    "t": {"mayor": ("Who was mayor of {}?", "the mayor of {}")},
    "p": {"town": ("In which town was {} born?", "the birthplace of {}")},
    "h": {
        "founder": ("Who founded {}?", "the founder of {}"),
        "town": ("In which town is the seat of {}?", "the town that is the seat of {}"),
    },
    "w": {"maker": ("Who made {}?", "the maker of {}"), "house": ("", "the house that keeps {}")},
    "f": {"founder": ("", "the founder of {}"), "town": ("", "the town of {}")},
}
"""By link of an entity: the question about it, and the phrase that describes the linked entity."""
_MOST_SOURCES = 3


@lru_cache(maxsize=1)
def list_questions() -> dict[int, list[Question]]:
    """Return all questions by level, which is the number of entries: 1 to 3."""
    world = draw_world()
    found: dict[int, list[Question]] = {level: [] for level in range(1, _MOST_SOURCES + 1)}
    for place, one in world.items():
        for question in _ask(world, one.name if place[0] in "tp" else f"the {one.name}", (place,)):
            if len(set(question.sources)) == len(question.sources):
                found[len(question.sources)].append(question)
    return found


def _ask(world: World, told: str, sources: tuple[str, ...]) -> Iterator[Question]:
    """Yield questions about the last source, which `told` describes, and about the entities that it links to."""
    place, leads = sources[-1], len(sources) < _MOST_SOURCES
    one, links = world[place], _LINKS[place[0]]
    for fact, question in _FACTS[place[0]].items():
        yield Question(question.format(told), str(one.facts[fact]), sources)
    for link, (question, _) in links.items():
        # A mayor is only a step to another question, never an answer.
        if question and (leads or link != "mayor"):
            yield Question(question.format(told), world[one.links[link]].name, sources)
    for link, (_, words) in links.items() if leads else ():
        yield from _ask(world, words.format(told), (*sources, one.links[link]))


_HOW = (
    "Find out with the tools, which search the encyclopaedia of the Lantern Isles. End with two lines: Answer: "
    "followed "
    "by the answer alone, and Sources: followed by the ids of the entries that it follows from, and of no others. Open "
    "an entry before you name it."
)


def make_task(dice: random.Random, difficulty: Difficulty) -> TaskRow:
    question = dice.choice(list_questions()[LEVELS[difficulty]])
    return {
        "responses_create_params": ask(f"{question.text}\n\n{_HOW}"),
        "expected_answer": question.answer,
        "expected_sources": list(question.sources),
    }


def _solve(seen: Seen) -> Move:
    """Search for each entry by its title, open it, and continue with the next."""
    sources = seen.row["expected_sources"]
    if seen.turn < 2 * len(sources):
        place = sources[seen.turn // 2]
        if seen.turn % 2 == 0:
            return Move(calls=[Call("search", {"query": write_documents()[place].title, "limit": 3})])
        return Move(calls=[Call("read_document", {"id": place})])
    return _answer(seen.row["expected_answer"], sources)


def _answer(answer: str, sources: list[str]) -> Move:
    return Move(text=f"Answer: {answer}\nSources: {', '.join(sources)}")


def _guess(seen: Seen) -> Move:
    """Search for the question, open the first hit, and answer with a random word from it."""
    if seen.turn == 0:
        return Move(calls=[Call("search", {"query": seen.prompt.split("\n")[0], "limit": 1})])
    title = write_documents().get(seen.outputs[0].split('"id":"')[-1].split('"')[0])
    if title is None:
        return _answer("nothing", [])
    if seen.turn == 1:
        return Move(calls=[Call("read_document", {"id": title.id})])
    return _answer(seen.dice.choice(title.text.replace(".", "").split()), [title.id])


def _cases() -> list[Case]:
    question = list_questions()[2][0]
    row: TaskRow = {
        "responses_create_params": ask(f"{question.text}\n\n{_HOW}"),
        "expected_answer": question.answer,
        "expected_sources": list(question.sources),
    }
    right, (first, second) = question.answer, question.sources
    all_texts = " ".join(document.text for document in write_documents().values())
    everything = sorted(write_documents())[:20]

    def play(answer: str, opened: list[str], named: list[str]) -> Player:
        reads = Move(calls=[Call("read_document", {"id": place}) for place in opened])
        return say(reads, _answer(answer, named))

    both = [first, second]
    few = 0.75 + 0.25 * 2 * (2 / 20) / (1 + 2 / 20)
    return [
        Case(name="answer and sources", kind="full reward", row=row, play=play(right, both, both), reward=1.0),
        Case(name="no sources", kind="full reward", row=row, play=play(right, both, []), reward=0.75),
        Case(name="sources unopened", kind="full reward", row=row, play=play(right, ["p99"], both), reward=0.75),
        Case(
            name="too many sources",
            kind="full reward",
            row=row,
            play=play(right, [*both, *everything], [*both, *(one for one in everything if one not in both)][:20]),
            reward=few,
        ),
        Case(name="another answer", kind="zero reward", row=row, play=play("Nobody", both, both), reward=0.0),
        Case(name="all there is", kind="zero reward", row=row, play=play(all_texts, both, both), reward=0.0),
        Case(
            name="calls in a wrong form",
            kind="malformed",
            row=row,
            play=say(
                Move(calls=[Call("search", {"query": 7}), Call("search", {"query": '" OR *', "limit": 99})]),
                Move(calls=[Call("search", '{"query": "NEAR( \\ud800 *"}'), Call("read_document", {"id": "none"})]),
                right,
            ),
            reward=0.0,
        ),
    ]


KIT = Kit(make_task=make_task, solve=_solve, guess=_guess, cases=_cases, max_steps=12)
