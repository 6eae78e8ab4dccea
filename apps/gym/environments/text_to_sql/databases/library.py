"""A library: authors, books, members and loans."""

import random

from apps.gym.environments.text_to_sql.databases.protocol import (
    Database,
    Phrase,
    QuestionKind,
    Rows,
    day,
    months,
    people,
)
from apps.gym.environments.wordlists import CITIES, FIRST_NAMES, LAST_NAMES

_COUNTRIES = ("Chile", "Egypt", "Finland", "India", "Japan")
_GENRES = ("biography", "crime", "history", "poetry", "science", "travel")
_CITIES = CITIES[7:12]
_LOANS = 240
_OPENINGS = ("A Winter in", "Beyond", "Letters from", "Maps of", "The Bridges of", "The Last Ship to", "Under")
_PLACES = ("Amberlay", "Corvin", "Dunmere", "Estral", "Fallow Bay", "Gort", "Hollin", "Iskar", "Juno Sound", "Kestle")

SCHEMA = """
CREATE TABLE authors (id INTEGER PRIMARY KEY, name TEXT, country TEXT, born INTEGER);
CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, author_id INTEGER REFERENCES authors, genre TEXT, year INTEGER);
CREATE TABLE members (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE loans (id INTEGER PRIMARY KEY, book_id INTEGER REFERENCES books, member_id INTEGER REFERENCES members,
                    lent_on TEXT, returned_on TEXT);  -- returned_on is NULL while the book is out
"""


def _fill(dice: random.Random) -> dict[str, Rows]:
    names = people(dice, FIRST_NAMES, LAST_NAMES, 50)
    titles = dice.sample([f"{opening} {place}" for opening in _OPENINGS for place in _PLACES], 56)
    loans: Rows = []
    while len(loans) < _LOANS:
        member, lent = dice.randint(1, 27), day(dice, 2022, 2024)
        # Some members borrow several books at once.
        for book in dice.sample(range(1, 51), dice.choice((1, 1, 2, 3))):
            back = None if dice.random() < 0.3 else f"{int(lent[:4]) + 1}{lent[4:8]}{dice.randint(1, 28):02}"
            loans.append((len(loans) + 1, book, member, lent, back))
    return {
        "authors": [
            (at + 1, name, dice.choice(_COUNTRIES), dice.randint(1930, 1975)) for at, name in enumerate(names[:20])
        ],
        "books": [
            (at + 1, title, dice.randint(1, 18), dice.choice(_GENRES), dice.randint(1980, 2023))
            for at, title in enumerate(titles)
        ],
        "members": [(at + 1, name, dice.choice(_CITIES)) for at, name in enumerate(names[20:])],
        "loans": loans,
    }


_YEARS = range(2022, 2025)

_LEVEL_1 = (
    QuestionKind(
        "Which books of the genre {genre} came out after {first}? Give title and year, the oldest first; of one year, "
        "by title.",
        "SELECT title, year FROM books WHERE genre = '{genre}' AND year > {first} ORDER BY year, title",
        {"genre": _GENRES, "first": range(1981, 2016)},
        ordered=True,
    ),
    QuestionKind(
        "Which authors from {country} were born {way.text} {born}? Give their names.",
        "SELECT name FROM authors WHERE country = '{country}' AND born {way.sql} {born}",
        {
            "country": _COUNTRIES,
            "born": range(1930, 1976),
            "way": (Phrase("before", "<"), Phrase("after", ">")),
        },
    ),
    QuestionKind(
        "How many loans that began on or after {year}-{month:02}-01 have not been returned?",
        "SELECT COUNT(*) FROM loans WHERE lent_on >= '{year}-{month:02}-01' AND returned_on IS NULL",
        {"year": _YEARS, "month": range(1, 10)},
    ),
)
_LEVEL_2 = (
    QuestionKind(
        "How many books of each genre since {first}, that year included, are by authors from {country}? Give genre "
        "and number, only of genres that have any.",
        "SELECT b.genre, COUNT(*) FROM books b JOIN authors a ON a.id = b.author_id "
        "WHERE a.country = '{country}' AND b.year >= {first} GROUP BY b.genre",
        {"country": _COUNTRIES, "first": range(1981, 2011)},
    ),
    QuestionKind(
        "Which members from {city} borrowed a book of the genre {genre} in {year}? Give each name once.",
        "SELECT DISTINCT m.name FROM members m JOIN loans l ON l.member_id = m.id JOIN books b ON b.id = l.book_id "
        "WHERE m.city = '{city}' AND b.genre = '{genre}' AND l.lent_on LIKE '{year}-%'",
        {"city": _CITIES, "genre": _GENRES, "year": _YEARS},
    ),
    QuestionKind(
        "Which books that came out after {year} were lent at least {least} times to members from {city}? Give title "
        "and number of loans.",
        "SELECT b.title, COUNT(*) FROM books b JOIN loans l ON l.book_id = b.id JOIN members m ON m.id = l.member_id "
        "WHERE m.city = '{city}' AND b.year > {year} GROUP BY b.id HAVING COUNT(*) >= {least}",
        {"least": range(2, 5), "city": _CITIES, "year": range(1981, 2011)},
    ),
)
_LEVEL_3 = (
    QuestionKind(
        "Which books that are of the genre {genre} or by an author from {country} were not lent {period.text}? Give "
        "their titles.",
        "SELECT b.title FROM books b JOIN authors a ON a.id = b.author_id "
        "WHERE (b.genre = '{genre}' OR a.country = '{country}') AND NOT EXISTS "
        "(SELECT 1 FROM loans l WHERE l.book_id = b.id AND {period.sql})",
        {"genre": _GENRES, "country": _COUNTRIES, "period": months(2022, 2024, "l.lent_on")},
    ),
    QuestionKind(
        "For each member from {city} who ever borrowed a book of the genre {genre}: which was the first of them? Give "
        "member name, title and day; of loans of the same day, the one with the lower id.",
        "SELECT name, title, lent_on FROM (SELECT m.name, b.title, l.lent_on, ROW_NUMBER() OVER "
        "(PARTITION BY m.id ORDER BY l.lent_on, l.id) AS place FROM members m JOIN loans l ON l.member_id = m.id "
        "JOIN books b ON b.id = l.book_id WHERE m.city = '{city}' AND b.genre = '{genre}') WHERE place = 1",
        {"city": _CITIES, "genre": _GENRES},
    ),
    QuestionKind(
        "Which authors from {country} have books that were lent more often {period.text} than books of all authors "
        "were on average? Average over all books, those without a loan too. Give each author's name once.",
        "WITH lent AS (SELECT b.id, b.author_id, COUNT(l.id) AS times FROM books b LEFT JOIN loans l ON "
        "l.book_id = b.id AND {period.sql} GROUP BY b.id) SELECT DISTINCT a.name FROM authors a "
        "JOIN lent ON lent.author_id = a.id WHERE a.country = '{country}' "
        "AND lent.times > (SELECT AVG(times) FROM lent)",
        {"country": _COUNTRIES, "period": months(2022, 2024, "l.lent_on", least=3)},
    ),
)

DATABASE = Database(about="a library", schema=SCHEMA, fill=_fill, questions={1: _LEVEL_1, 2: _LEVEL_2, 3: _LEVEL_3})
