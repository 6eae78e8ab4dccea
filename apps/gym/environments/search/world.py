"""The Lantern Isles, which do not exist: towns, people, houses, works and festivals, drawn once and for all."""

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
    """A museum, a university and the like."""

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
    """Whoever is referred to is so by its place in the list."""

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
