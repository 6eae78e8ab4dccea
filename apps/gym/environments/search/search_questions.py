"""Questions by the number of entries that must be read, each with its answer and those entries."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from apps.gym.environments.search.world import Festival, House, Person, Town, Work, World, draw_world


class Question(NamedTuple):
    """`sources` are the ids of the entries, in the order in which one leads to the next."""

    text: str
    answer: str
    sources: tuple[str, ...]


class _Thing(NamedTuple):
    """Something that a question arrives at: how it is called, and the entries that lead there, its own the last."""

    told: str
    sources: tuple[str, ...]


@lru_cache(maxsize=1)
def list_questions() -> dict[int, list[Question]]:
    """All there are, by level: 1 to 3 entries."""
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
