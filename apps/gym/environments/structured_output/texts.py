"""Kinds of short texts, each with a schema and the object that the text describes."""

import itertools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from apps.gym.environments.wordlists import CITIES, FIRST_NAMES, LAST_NAMES, MONTHS

Schema = dict[str, Any]


class Text(NamedTuple):
    sentences: list[str]
    schema: Schema
    value: dict[str, Any]


def text_field(about: str, **more: Any) -> Schema:
    return {"type": "string", "description": about, **more}


def whole(about: str) -> Schema:
    return {"type": "integer", "description": about}


def number(about: str) -> Schema:
    return {"type": "number", "description": about}


def truth(about: str) -> Schema:
    return {"type": "boolean", "description": about}


def listed(items: Schema, about: str) -> Schema:
    return {"type": "array", "items": items, "description": about}


def fields(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


DAY = text_field("YYYY-MM-DD", pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")


def _name(dice: random.Random) -> str:
    return f"{dice.choice(FIRST_NAMES)} {dice.choice(LAST_NAMES)}"


def _date(dice: random.Random, *, earliest: int = 2019) -> tuple[str, str]:
    """Return a date as written in the text and as written in the object."""
    year, month, day = earliest + dice.randint(0, 12), dice.randint(1, 12), dice.randint(1, 28)
    return f"{day} {MONTHS[month - 1]} {year}", f"{year}-{month:02}-{day:02}"


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _order(dice: random.Random, level: int) -> Text:
    goods = {"desk lamp": 2450, "notebook": 320, "office chair": 14900, "pen set": 890, "monitor arm": 5600, "mug": 750}
    customer, city, paid = _name(dice), dice.choice(CITIES), dice.random() < 0.5
    told, day = _date(dice)
    lines = [(name, dice.randint(2, 9)) for name in dice.sample(sorted(goods), level)]
    reference = f"{dice.choice('ABCDEFGH')}-{dice.randint(1000, 99999)}"
    sentences = [
        f"On {told} we received order {reference} from {customer} in {city}.",
        f"It is for {_join([f'{count} × {name} at {goods[name] / 100:.2f} euros each' for name, count in lines])}.",
        "The invoice has been paid in full." if paid else "The invoice has not been paid yet.",
    ]
    properties = {
        "reference": text_field("of the order"),
        "customer": text_field("full name"),
        "ordered_on": DAY,
        "paid": truth("whether it has been paid"),
    }
    value: dict[str, Any] = {"reference": reference, "customer": customer, "ordered_on": day, "paid": paid}
    if level == 1:
        properties |= {"product": text_field("as the text names it"), "quantity": whole("how many")}
        value |= {"product": lines[0][0], "quantity": lines[0][1]}
    else:
        line = fields(product=text_field("as named"), quantity=whole("how many"), unit_price=number("euros"))
        properties["lines"] = listed(line, "in the order of the text")
        value["lines"] = [{"product": name, "quantity": many, "unit_price": goods[name] / 100} for name, many in lines]
    if level == 3:
        properties |= {"total_cents": whole("the whole order, in cents"), "city": text_field("of the customer")}
        value |= {"total_cents": sum(goods[name] * many for name, many in lines), "city": city}
    return Text(sentences, fields(**properties), value)


def _meeting(dice: random.Random, level: int) -> Text:
    told, day = _date(dice)
    topic = dice.choice(("the budget", "the new website", "hiring", "the office move", "safety", "the annual report"))
    people = list(dict.fromkeys(_name(dice) for _ in range(level + 1)))
    hour, minutes, online = dice.randint(8, 17), dice.choice((0, 15, 30, 45)), dice.random() < 0.5
    length = dice.choice((20, 30, 45, 60, 90, 120))
    room = f"{dice.choice('ABCD')}{dice.randint(100, 420)}"
    clock = f"{(hour - 1) % 12 + 1}:{minutes:02} {'am' if hour < 12 else 'pm'}"
    where = "It takes place online" if online else f"It takes place in room {room}"
    sentences = [
        f"The meeting about {topic} is on {told} at {clock}.",
        f"{where} and is planned for {length} minutes.",
        f"{_join(people)} will attend.",
    ]
    properties = {
        "topic": text_field("without the word about"),
        "day": DAY,
        "starts": text_field("HH:MM, 24 hours", pattern="^[0-2][0-9]:[0-5][0-9]$"),
        "minutes": whole("how long it takes"),
    }
    value: dict[str, Any] = {"topic": topic, "day": day, "starts": f"{hour:02}:{minutes:02}", "minutes": length}
    if level > 1:
        place = fields(online=truth("whether it is online"), room={"type": ["string", "null"], "description": "if any"})
        properties |= {"place": place, "people": listed(text_field("full name"), "in the order of the text")}
        value |= {"place": {"online": online, "room": None if online else room}, "people": people}
    if level == 3:
        ends = hour * 60 + minutes + length
        properties["ends"] = text_field("HH:MM, 24 hours", pattern="^[0-2][0-9]:[0-5][0-9]$")
        value["ends"] = f"{ends // 60:02}:{ends % 60:02}"
    return Text(sentences, fields(**properties), value)


def _person(dice: random.Random, level: int) -> Text:
    name, city, trade = _name(dice), dice.choice(CITIES), dice.choice(("baker", "nurse", "pilot", "tailor", "welder"))
    told, born = _date(dice, earliest=1970)
    languages = dice.sample(("Czech", "Dutch", "Finnish", "Greek", "Irish", "Korean", "Maltese", "Urdu"), level + 1)
    remote, years = dice.random() < 0.5, dice.randint(12, 30)
    posts = [(dice.choice(CITIES), dice.randint(1, 9)) for _ in range(level)]
    sentences = [
        f"{name}, who was born on {told}, lives in {city}.",
        f"By trade a {trade} with {years} years of practice, {name.split()[0]} "
        f"{'is' if remote else 'is not'} willing to move.",
        f"{name.split()[0]} speaks {_join(languages)}.",
        *(
            f"{'Before that, ' if at else 'Lately, '}{years} years were spent in {at_city}."
            for at, (at_city, years) in enumerate(posts)
            if level > 1
        ),
    ]
    properties = {
        "name": text_field("full name"),
        "born_on": DAY,
        "trade": text_field("of the person", enum=["baker", "nurse", "pilot", "tailor", "welder"]),
        "willing_to_move": truth("whether the text says so"),
        "years_of_practice": whole("in the trade"),
    }
    value: dict[str, Any] = {
        "name": name,
        "born_on": born,
        "trade": trade,
        "willing_to_move": remote,
        "years_of_practice": years,
    }
    if level > 1:
        post = fields(city=text_field("where"), years=whole("how long"))
        properties |= {
            "languages": listed(text_field("in English"), "in the order of the text"),
            "posts": listed(post, "the latest first"),
        }
        value |= {"languages": languages, "posts": [{"city": place, "years": many} for place, many in posts]}
    if level == 3:
        first, *rest = name.split()
        properties["initials"] = text_field("such as A.B.")
        value["initials"] = f"{first[0]}.{rest[0][0]}."
    return Text(sentences, fields(**properties), value)


def _trip(dice: random.Random, level: int) -> Text:
    stops = dice.sample(CITIES, level + 2)
    legs = [(a, b, dice.choice(("train", "bus", "ferry")), dice.randint(12, 180)) for a, b in itertools.pairwise(stops)]
    told, day = _date(dice)
    seats, refund = dice.randint(1, 6), dice.random() < 0.5
    sentences = [
        f"The trip begins on {told} in {stops[0]} and is booked for {seats} {'person' if seats == 1 else 'people'}.",
        *(f"From {a} it goes on to {b} by {by}, which costs {price} euros a seat." for a, b, by, price in legs),
        f"The tickets can{'' if refund else 'not'} be returned.",
    ]
    vehicles = ["train", "bus", "ferry"]
    properties = {
        "begins_on": DAY,
        "seats": whole("how many people"),
        "start": text_field("city"),
        "end": text_field("the last city"),
        "refundable": truth("whether tickets can be returned"),
    }
    value: dict[str, Any] = {
        "begins_on": day,
        "seats": seats,
        "start": stops[0],
        "end": stops[-1],
        "refundable": refund,
    }
    if level > 1:
        leg = fields(
            origin=text_field("city"), destination=text_field("city"), vehicle=text_field("how", enum=vehicles)
        )
        properties["legs"] = listed(leg, "in the order of travel")
        value["legs"] = [{"origin": a, "destination": b, "vehicle": by} for a, b, by, _ in legs]
    if level == 3:
        properties["total_euros"] = whole("of all seats and legs")
        value["total_euros"] = seats * sum(price for *_, price in legs)
    return Text(sentences, fields(**properties), value)


MAKERS: tuple[Callable[[random.Random, int], Text], ...] = (_order, _meeting, _person, _trip)
ASIDES = (
    "Please note that the office is closed on public holidays.",
    "A copy of this message is kept for two years.",
    "The 14 other requests of this week are dealt with elsewhere.",
    "Our colleagues in Vienna know about it.",
    "Whoever reads this late should call extension 371.",
)
"""Sentences without information that the schema asks for."""
