"""The encyclopaedia of the Lantern Isles: one entry for each town, person, house, work and festival."""

import random
from functools import lru_cache
from typing import NamedTuple

from apps.gym.environments.search.world import Festival, House, Person, Town, Work, World, draw_world
from apps.gym.environments.wordlists import MONTHS


class Document(NamedTuple):
    id: str
    title: str
    text: str


@lru_cache(maxsize=1)
def write_documents() -> dict[str, Document]:
    """By id: a letter for the kind, and the place in the world's list."""
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
