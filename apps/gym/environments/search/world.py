"""The Lantern Isles, an invented archipelago: towns, people, houses, works and festivals, drawn from a fixed seed."""

import random
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from apps.gym.environments.wordlists import MONTHS

_SEED = "lantern isles/1"
_TOWNS, _PEOPLE, _HOUSES, _WORKS, _FESTIVALS = 44, 130, 36, 70, 36


def _words(listed: str) -> list[str]:
    return listed.split()


_HEADS = _words("Al Bra Cor Dun El Fen Gar Hol Is Jar Kel Lo Mar Nor Ost Pel Quen Ros Sar Tam Ul Ver Wes Yar Zel")
_MIDDLES = _words("a an ar den e el en er i il in o on or u")
_TOWN_ENDS = _words("bury dale ford gate haven holm mouth stead ton wick")
_FIRST_HEADS = _words("Ad Bel Cas Dor Em Far Gil Hen Il Jos Kat Lin Mir Nel Or Per Ra Sel Tor Ur Vin Wil Yv")
_FIRST_ENDS = _words("a an en ia in is o on us y")
_LAST_ENDS = _words("acre beck croft derry fell grave ham leaf marsh quist sand thorn wen")
_RIVER_ENDS = _words("ane eth ill ow una")

TRADES = (
    "architect",
    "astronomer",
    "botanist",
    "cartographer",
    "composer",
    "glassblower",
    "historian",
    "lawyer",
    "navigator",
    "painter",
    "physician",
    "poet",
    "printer",
    "sculptor",
    "shipwright",
    "watchmaker",
)
_HOUSE_KINDS = ("museum", "library", "university", "shipyard", "theatre", "observatory")
_WORK_KINDS = ("bridge", "clock", "globe", "mural", "opera", "statue", "atlas")
_ADJECTIVES = _words("Amber Broken Crimson Distant Early Frozen Golden Hidden Iron Long Pale Silent Tall Velvet White")
_NOUNS = _words("Anchor Bell Crane Dawn Elm Ferry Gull Harbour Island Lantern Mirror Orchard Rose Storm Tide")
_GOODS = "copper glass herring honey lace paper rope salt silk slate tea wool"


class Town(NamedTuple):
    name: str
    founded: int
    river: str
    mayor: int
    goods: str
    inhabitants: int


class Person(NamedTuple):
    name: str
    born: int
    town: int
    trade: str


class House(NamedTuple):
    """An institution, for example a museum or a university."""

    name: str
    kind: str
    founded: int
    founder: int
    town: int


class Work(NamedTuple):
    name: str
    kind: str
    year: int
    maker: int
    house: int


class Festival(NamedTuple):
    name: str
    town: int
    month: str
    began: int
    founder: int


class World(NamedTuple):
    """All entities. References between them are indexes into these lists."""

    towns: list[Town]
    people: list[Person]
    houses: list[House]
    works: list[Work]
    festivals: list[Festival]


@lru_cache(maxsize=1)
def draw_world() -> World:
    dice = random.Random(_SEED)
    town_names = _different(_TOWNS, lambda: _word(dice, _HEADS, _MIDDLES, _TOWN_ENDS))
    rivers = _different(_TOWNS, lambda: dice.choice(_HEADS) + dice.choice(_MIDDLES) + dice.choice(_RIVER_ENDS))
    names = _different(_PEOPLE, lambda: _person_name(dice))
    towns = [
        Town(name, dice.randint(903, 1620), river, at, dice.choice(_GOODS.split()), dice.randint(12, 900) * 100)
        for at, (name, river) in enumerate(zip(town_names, rivers, strict=True))
    ]
    people = [Person(name, dice.randint(1620, 1890), dice.randrange(_TOWNS), dice.choice(TRADES)) for name in names]
    titles = _different(_HOUSES + _WORKS + _FESTIVALS, lambda: f"{dice.choice(_ADJECTIVES)} {dice.choice(_NOUNS)}")
    houses = [
        House(f"{title} {kind.title()}", kind, dice.randint(1650, 1930), dice.randrange(_TOWNS, _PEOPLE), town)
        for title, kind, town in (
            (title, dice.choice(_HOUSE_KINDS), dice.randrange(_TOWNS)) for title in titles[:_HOUSES]
        )
    ]
    works = [
        Work(f"the {title} {kind.title()}", kind, dice.randint(1650, 1930), dice.randrange(_PEOPLE), house)
        for title, kind, house in (
            (title, dice.choice(_WORK_KINDS), dice.randrange(_HOUSES)) for title in titles[_HOUSES : _HOUSES + _WORKS]
        )
    ]
    festivals = [
        Festival(f"{title} Festival", dice.randrange(_TOWNS), dice.choice(MONTHS), year, dice.randrange(_PEOPLE))
        for title, year in ((title, dice.randint(1640, 1940)) for title in titles[_HOUSES + _WORKS :])
    ]
    return World(towns, people, houses, works, festivals)


def _word(dice: random.Random, *parts: list[str]) -> str:
    return "".join(dice.choice(part) for part in parts)


def _person_name(dice: random.Random) -> str:
    return f"{_word(dice, _FIRST_HEADS, _FIRST_ENDS)} {_word(dice, _HEADS, _LAST_ENDS)}"


def _different(count: int, make: Callable[[], str]) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[make()] = None
    return list(found)


class Document(NamedTuple):
    id: str
    title: str
    text: str


@lru_cache(maxsize=1)
def write_documents() -> dict[str, Document]:
    """Return the entries by id: a letter for the kind, and the index in the world's list."""
    world, dice = draw_world(), random.Random("documents/1")
    written = [
        *(_town(world, dice, at, town) for at, town in enumerate(world.towns)),
        *(_person(world, dice, at, person) for at, person in enumerate(world.people)),
        *(_house(world, dice, at, house) for at, house in enumerate(world.houses)),
        *(_work(world, dice, at, work) for at, work in enumerate(world.works)),
        *(_festival(world, dice, at, festival) for at, festival in enumerate(world.festivals)),
    ]
    return {document.id: document for document in written}


def _town(world: World, dice: random.Random, at: int, town: Town) -> Document:
    neighbours = [world.towns[(at + step) % len(world.towns)].name for step in (1, 7)]
    sentences = [
        dice.choice(
            (
                f"{town.name} is a town in the Lantern Isles.",
                f"{town.name} is one of the older towns of the Lantern Isles.",
            )
        ),
        dice.choice(
            (
                f"It was founded in {town.founded} where a ford crosses the {town.river}.",
                f"The first charter dates from {town.founded}, the year in which it was founded beside the "
                f"{town.river}.",
            )
        ),
        f"The river {town.river} flows through it and turns the wheels of several mills.",
        f"Its markets are known for {town.goods}, which is shipped to {neighbours[0]} and {neighbours[1]}.",
        f"About {town.inhabitants:,} people lived there when they were last counted.",
        f"{world.people[town.mayor].name} was elected mayor of {town.name} and held the office for "
        f"{dice.randint(3, 25)} years.",
    ]
    return Document(f"t{at}", town.name, " ".join(sentences))


def _person(world: World, dice: random.Random, at: int, person: Person) -> Document:
    town = world.towns[person.town].name
    first = person.name.split()[0]
    sentences = [
        dice.choice(
            (
                f"{person.name} was {_a(person.trade)} of the Lantern Isles.",
                f"{person.name}, by profession {_a(person.trade)}, is remembered in many letters of the time.",
            )
        ),
        dice.choice(
            (
                f"{first} was born in {town} in {person.born}.",
                f"Born in {person.born}, {first} grew up in {town}, the place of birth of both parents as well.",
            )
        ),
        dice.choice(
            (
                "A house with blue shutters is all that is left of the family's property.",
                "Two portraits exist, neither of which is signed.",
                "The diaries were lost in a flood and are known from copies.",
                "Friends describe a patient teacher with little love for travel.",
            )
        ),
    ]
    return Document(f"p{at}", person.name, " ".join(sentences))


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"


def _house(world: World, dice: random.Random, at: int, house: House) -> Document:
    kept = [work.name for work in world.works if work.house == at]
    sentences = [
        f"The {house.name} is {_a(house.kind)} in {world.towns[house.town].name}.",
        f"It was founded in {house.founded} by {world.people[house.founder].name}, who paid for the building.",
        f"Its seat has been in {world.towns[house.town].name} ever since.",
        f"Among what it keeps is {' and '.join(kept[:2])}." if kept else "Visitors are let in on two days of the week.",
        dice.choice(("The roof was renewed after a fire.", "A reading room is open in the evening.", "Entry is free.")),
    ]
    return Document(f"h{at}", house.name, " ".join(sentences))


def _work(world: World, dice: random.Random, at: int, work: Work) -> Document:
    house = world.houses[work.house]
    sentences = [
        f"{work.name[0].upper()}{work.name[1:]} is {_a(work.kind)} by {world.people[work.maker].name}.",
        f"It was finished in {work.year}, after {dice.randint(2, 14)} years of work.",
        f"It is in the care of the {house.name}.",
        dice.choice(
            (
                "Critics have called it too large for its purpose.",
                "A smaller copy was made for a private collection.",
                "It was hidden in a cellar in years of war.",
            )
        ),
    ]
    return Document(f"w{at}", work.name.removeprefix("the "), " ".join(sentences))


def _festival(world: World, dice: random.Random, at: int, festival: Festival) -> Document:
    other = dice.choice([month for month in MONTHS if month != festival.month])
    sentences = [
        f"The {festival.name} takes place every year in {world.towns[festival.town].name}.",
        f"It was begun in {festival.began} by {world.people[festival.founder].name}.",
        f"Guests come in {festival.month}; an attempt to move it to {other} was given up.",
        dice.choice(("It ends with a row of boats on the water.", "Children carry paper lamps.", "There is a race.")),
    ]
    return Document(f"f{at}", festival.name, " ".join(sentences))
