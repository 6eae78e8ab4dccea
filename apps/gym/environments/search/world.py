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


class Entity(NamedTuple):
    """A town, a person, an institution, a work or a festival. `links` are the ids of other entities."""

    name: str
    facts: dict[str, str | int]
    links: dict[str, str]


World = dict[str, Entity]
"""Entities by id: a letter for the kind (t, p, h, w, f), and a number."""


@lru_cache(maxsize=1)
def draw_world() -> World:
    dice = random.Random(_SEED)
    world: World = {}
    town_names = _different(_TOWNS, lambda: _word(dice, _HEADS, _MIDDLES, _TOWN_ENDS))
    rivers = _different(_TOWNS, lambda: dice.choice(_HEADS) + dice.choice(_MIDDLES) + dice.choice(_RIVER_ENDS))
    names = _different(_PEOPLE, lambda: _person_name(dice))
    for at, (name, river) in enumerate(zip(town_names, rivers, strict=True)):
        founded, goods, people = dice.randint(903, 1620), dice.choice(_GOODS.split()), dice.randint(12, 900) * 100
        facts: dict[str, str | int] = {"founded": founded, "river": river, "goods": goods, "inhabitants": people}
        world[f"t{at}"] = Entity(name, facts, {"mayor": f"p{at}"})
    for at, name in enumerate(names):
        born, town, trade = dice.randint(1620, 1890), dice.randrange(_TOWNS), dice.choice(TRADES)
        world[f"p{at}"] = Entity(name, {"born": born, "kind": trade}, {"town": f"t{town}"})
    titles = iter(
        _different(_HOUSES + _WORKS + _FESTIVALS, lambda: f"{dice.choice(_ADJECTIVES)} {dice.choice(_NOUNS)}")
    )
    for at in range(_HOUSES):
        kind, town = dice.choice(_HOUSE_KINDS), dice.randrange(_TOWNS)
        founded, founder = dice.randint(1650, 1930), dice.randrange(_TOWNS, _PEOPLE)
        links = {"founder": f"p{founder}", "town": f"t{town}"}
        world[f"h{at}"] = Entity(f"{next(titles)} {kind.title()}", {"kind": kind, "founded": founded}, links)
    for at in range(_WORKS):
        kind, house = dice.choice(_WORK_KINDS), dice.randrange(_HOUSES)
        year, maker = dice.randint(1650, 1930), dice.randrange(_PEOPLE)
        links = {"maker": f"p{maker}", "house": f"h{house}"}
        world[f"w{at}"] = Entity(f"{next(titles)} {kind.title()}", {"kind": kind, "year": year}, links)
    for at in range(_FESTIVALS):
        began, town = dice.randint(1640, 1940), dice.randrange(_TOWNS)
        month, founder = dice.choice(MONTHS), dice.randrange(_PEOPLE)
        links = {"founder": f"p{founder}", "town": f"t{town}"}
        world[f"f{at}"] = Entity(f"{next(titles)} Festival", {"began": began, "month": month}, links)
    return world


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


_SENTENCES: dict[str, tuple[tuple[str, ...], ...]] = {
    "t": (
        ("{name} is a town in the Lantern Isles.", "{name} is one of the older towns of the Lantern Isles."),
        (
            "It was founded in {founded} where a ford crosses the {river}.",
            "The first charter dates from {founded}, the year in which it was founded beside the {river}.",
        ),
        ("The river {river} flows through it and turns the wheels of several mills.",),
        ("Its markets are known for {goods}, which is shipped to {neighbours}.",),
        ("About {inhabitants:,} people lived there when they were last counted.",),
        tuple(
            f"{{mayor}} was elected mayor of {{name}} and held the office for {years} years." for years in range(3, 26)
        ),
    ),
    "p": (
        (
            "{name} was {article} {kind} of the Lantern Isles.",
            "{name}, by profession {article} {kind}, is remembered in many letters of the time.",
        ),
        (
            "{first} was born in {town} in {born}.",
            "Born in {born}, {first} grew up in {town}, the place of birth of both parents as well.",
        ),
        (
            "A house with blue shutters is all that is left of the family's property.",
            "Two portraits exist, neither of which is signed.",
            "The diaries were lost in a flood and are known from copies.",
            "Friends describe a patient teacher with little love for travel.",
        ),
    ),
    "h": (
        ("The {name} is {article} {kind} in {town}.",),
        ("It was founded in {founded} by {founder}, who paid for the building.",),
        ("Its seat has been in {town} ever since.",),
        ("{kept}",),
        ("The roof was renewed after a fire.", "A reading room is open in the evening.", "Entry is free."),
    ),
    "w": (
        ("The {name} is {article} {kind} by {maker}.",),
        tuple(f"It was finished in {{year}}, after {years} years of work." for years in range(2, 15)),
        ("It is in the care of the {house}.",),
        (
            "Critics have called it too large for its purpose.",
            "A smaller copy was made for a private collection.",
            "It was hidden in a cellar in years of war.",
        ),
    ),
    "f": (
        ("The {name} takes place every year in {town}.",),
        ("It was begun in {began} by {founder}.",),
        ("Guests come in {month}; an attempt to move it to {other_month} was given up.",),
        ("It ends with a row of boats on the water.", "Children carry paper lamps.", "There is a race."),
    ),
}
"""The sentences of an entry by kind, each with the forms of which one is drawn."""


@lru_cache(maxsize=1)
def write_documents() -> dict[str, Document]:
    """Return the entries by id."""
    world, dice = draw_world(), random.Random("documents/1")
    return {place: Document(place, one.name, _write(world, dice, place, one)) for place, one in world.items()}


def _write(world: World, dice: random.Random, place: str, one: Entity) -> str:
    known: dict[str, str | int] = {name: world[other].name for name, other in one.links.items()}
    known |= {"name": one.name, "first": one.name.split()[0], **one.facts}
    if "kind" in one.facts:
        known["article"] = "an" if str(one.facts["kind"])[0] in "aeio" else "a"
    if place[0] == "t":
        known["neighbours"] = " and ".join(world[f"t{(int(place[1:]) + step) % _TOWNS}"].name for step in (1, 7))
    if place[0] == "h":
        kept = [f"the {other.name}" for other in world.values() if other.links.get("house") == place]
        few = "Visitors are let in on two days of the week."
        known["kept"] = f"Among what it keeps is {' and '.join(kept[:2])}." if kept else few
    if place[0] == "f":
        known["other_month"] = dice.choice([month for month in MONTHS if month != one.facts["month"]])
    drawn = (dice.choice(forms) if len(forms) > 1 else forms[0] for forms in _SENTENCES[place[0]])
    return " ".join(drawn).format(**known)
