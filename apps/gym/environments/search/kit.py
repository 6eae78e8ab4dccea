"""Tasks, players and cases of search: a player that knows the entries, and one that guesses."""

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from apps.gym.environments.search.world import Festival, House, Person, Town, Work, World, draw_world, write_documents
from apps.gym.environments.task_generation import LEVELS, Call, Case, Difficulty, Kit, Move, Player, Seen, ask, say
from apps.gym.traces.items import TaskRow


class Question(NamedTuple):
    """A question. `sources` are the ids of the entries, in the order in which one leads to the next."""

    text: str
    answer: str
    sources: tuple[str, ...]


class _Thing(NamedTuple):
    """The subject of a question: its description, and the entries that lead to it, ending with its own."""

    told: str
    sources: tuple[str, ...]


@lru_cache(maxsize=1)
def list_questions() -> dict[int, list[Question]]:
    """Return all questions by level, which is the number of entries: 1 to 3."""
    world = draw_world()
    found: dict[int, list[Question]] = {1: [], 2: [], 3: []}
    for question in _all(world):
        if len(question.sources) in found and len(set(question.sources)) == len(question.sources):
            found[len(question.sources)].append(question)
    return found


def _all(world: World) -> Iterator[Question]:
    for at, town in enumerate(world.towns):
        yield from _of_town(world, town, _Thing(town.name, (f"t{at}",)), depth=2)
    for at, person in enumerate(world.people):
        yield from _of_person(world, person, _Thing(person.name, (f"p{at}",)), depth=2)
    for at, house in enumerate(world.houses):
        yield from _of_house(world, house, _Thing(f"the {house.name}", (f"h{at}",)), depth=2)
    for at, work in enumerate(world.works):
        yield from _of_work(world, work, _Thing(work.name, (f"w{at}",)))
    for at, festival in enumerate(world.festivals):
        yield from _of_festival(world, festival, _Thing(f"the {festival.name}", (f"f{at}",)))


def _of_town(world: World, town: Town, thing: _Thing, *, depth: int) -> Iterator[Question]:
    yield Question(f"In which year was {thing.told} founded?", str(town.founded), thing.sources)
    yield Question(f"Which river flows through {thing.told}?", town.river, thing.sources)
    if depth:
        mayor = _Thing(f"the mayor of {thing.told}", (*thing.sources, f"p{town.mayor}"))
        yield Question(f"Who was mayor of {thing.told}?", world.people[town.mayor].name, thing.sources)
        yield from _of_person(world, world.people[town.mayor], mayor, depth=depth - 1)


def _of_person(world: World, person: Person, thing: _Thing, *, depth: int) -> Iterator[Question]:
    yield Question(f"In which year was {thing.told} born?", str(person.born), thing.sources)
    yield Question(f"What was the profession of {thing.told}?", person.trade, thing.sources)
    yield Question(f"In which town was {thing.told} born?", world.towns[person.town].name, thing.sources)
    if depth:
        town = _Thing(f"the birthplace of {thing.told}", (*thing.sources, f"t{person.town}"))
        yield from _of_town(world, world.towns[person.town], town, depth=depth - 1)


def _of_house(world: World, house: House, thing: _Thing, *, depth: int) -> Iterator[Question]:
    yield Question(f"In which year was {thing.told} founded?", str(house.founded), thing.sources)
    yield Question(f"Who founded {thing.told}?", world.people[house.founder].name, thing.sources)
    yield Question(f"In which town is the seat of {thing.told}?", world.towns[house.town].name, thing.sources)
    founder = _Thing(f"the founder of {thing.told}", (*thing.sources, f"p{house.founder}"))
    yield from _of_person(world, world.people[house.founder], founder, depth=depth - 1)
    seat = _Thing(f"the town that is the seat of {thing.told}", (*thing.sources, f"t{house.town}"))
    yield from _of_town(world, world.towns[house.town], seat, depth=depth - 1)


def _of_work(world: World, work: Work, thing: _Thing) -> Iterator[Question]:
    yield Question(f"In which year was {thing.told} finished?", str(work.year), thing.sources)
    yield Question(f"Who made {thing.told}?", world.people[work.maker].name, thing.sources)
    maker = _Thing(f"the maker of {thing.told}", (*thing.sources, f"p{work.maker}"))
    yield from _of_person(world, world.people[work.maker], maker, depth=1)
    house = _Thing(f"the house that keeps {thing.told}", (*thing.sources, f"h{work.house}"))
    yield from _of_house(world, world.houses[work.house], house, depth=1)


def _of_festival(world: World, festival: Festival, thing: _Thing) -> Iterator[Question]:
    yield Question(f"In which year did {thing.told} begin?", str(festival.began), thing.sources)
    yield Question(f"In which month does {thing.told} take place?", festival.month, thing.sources)
    founder = _Thing(f"the founder of {thing.told}", (*thing.sources, f"p{festival.founder}"))
    yield from _of_person(world, world.people[festival.founder], founder, depth=1)
    town = _Thing(f"the town of {thing.told}", (*thing.sources, f"t{festival.town}"))
    yield from _of_town(world, world.towns[festival.town], town, depth=1)


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
