"""A clinic: doctors, patients and visits."""

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

_FIELDS = ("cardiology", "dermatology", "neurology", "orthopaedics", "paediatrics")
_FINDINGS = ("allergy", "fracture", "infection", "migraine", "sprain", "nothing")
_CITIES = CITIES[11:16]
_VISITS = 190

SCHEMA = """
CREATE TABLE doctors (id INTEGER PRIMARY KEY, name TEXT, field TEXT, hired INTEGER);
CREATE TABLE patients (id INTEGER PRIMARY KEY, name TEXT, born INTEGER, city TEXT);
CREATE TABLE visits (id INTEGER PRIMARY KEY, doctor_id INTEGER REFERENCES doctors,
                     patient_id INTEGER REFERENCES patients, day TEXT, finding TEXT, fee INTEGER);
"""


def _fill(dice: random.Random) -> dict[str, Rows]:
    names = people(dice, FIRST_NAMES, LAST_NAMES, 52)
    visits: list[tuple[int, int, str, str, int]] = []
    while len(visits) < _VISITS:
        patient, when = dice.randint(1, 35), day(dice, 2022, 2025)
        # Some patients see several doctors on one day.
        visits += [
            (dice.randint(1, 13), patient, when, dice.choice(_FINDINGS), dice.randint(4, 40) * 5)
            for _ in range(dice.choice((1, 1, 1, 2, 3)))
        ]
    return {
        "doctors": [
            (at + 1, name, dice.choice(_FIELDS), dice.randint(1998, 2022)) for at, name in enumerate(names[:14])
        ],
        "patients": [
            (at + 1, name, dice.randint(1935, 2018), dice.choice(_CITIES)) for at, name in enumerate(names[14:])
        ],
        "visits": [(at + 1, *visit) for at, visit in enumerate(visits)],
    }


_YEARS = range(2022, 2026)

_LEVEL_1 = (
    QuestionKind(
        "Which patients from {city} were born {way.text} {year}? Give their names, in alphabetical order.",
        "SELECT name FROM patients WHERE city = '{city}' AND born {way.sql} {year} ORDER BY name",
        {"city": _CITIES, "year": range(1945, 2006), "way": (Phrase("before", "<"), Phrase("in or after", ">="))},
        ordered=True,
    ),
    QuestionKind(
        "How many visits of {year} with the finding {finding} cost more than {fee}?",
        "SELECT COUNT(*) FROM visits WHERE finding = '{finding}' AND day LIKE '{year}-%' AND fee > {fee}",
        {"finding": _FINDINGS, "year": _YEARS, "fee": range(30, 165, 5)},
    ),
    QuestionKind(
        "What is the {figure.text} fee of visits with the finding {finding} in {year}? One number.",
        "SELECT {figure.sql}(fee) FROM visits WHERE finding = '{finding}' AND day LIKE '{year}-%'",
        {
            "finding": _FINDINGS,
            "year": _YEARS,
            "figure": (Phrase("highest", "MAX"), Phrase("lowest", "MIN"), Phrase("total", "SUM")),
        },
    ),
)
_LEVEL_2 = (
    QuestionKind(
        "How many visits {period.text} of patients from {city} ended with the finding {finding}, in each medical "
        "field? Give field and number, only of fields that have any.",
        "SELECT d.field, COUNT(*) FROM visits v JOIN doctors d ON d.id = v.doctor_id "
        "JOIN patients p ON p.id = v.patient_id WHERE p.city = '{city}' AND v.finding = '{finding}' "
        "AND {period.sql} GROUP BY d.field",
        {"finding": _FINDINGS, "city": _CITIES, "period": months(2022, 2025, "v.day", least=2)},
    ),
    QuestionKind(
        "Which patients born in or after {born} saw a doctor of {field} in {year}? Give each name once.",
        "SELECT DISTINCT p.name FROM patients p JOIN visits v ON v.patient_id = p.id JOIN doctors d ON d.id = "
        "v.doctor_id WHERE p.born >= {born} AND d.field = '{field}' AND v.day LIKE '{year}-%'",
        {"field": _FIELDS, "born": range(1945, 2009), "year": _YEARS},
    ),
    QuestionKind(
        "Which doctors took fees of {least} or more in all in {year}? Give name and sum, the highest sum first; of "
        "equal sums, by name.",
        "SELECT d.name, SUM(v.fee) AS fees FROM doctors d JOIN visits v ON v.doctor_id = d.id "
        "WHERE v.day LIKE '{year}-%' GROUP BY d.id HAVING SUM(v.fee) >= {least} ORDER BY fees DESC, d.name",
        {"year": _YEARS, "least": range(100, 650, 50)},
        ordered=True,
    ),
)
_LEVEL_3 = (
    QuestionKind(
        "Which patients from {city} saw no doctor of {field} {period.text}? Give their names.",
        "SELECT p.name FROM patients p WHERE p.city = '{city}' AND NOT EXISTS (SELECT 1 FROM visits v "
        "JOIN doctors d ON d.id = v.doctor_id "
        "WHERE v.patient_id = p.id AND d.field = '{field}' AND {period.sql})",
        {"field": _FIELDS, "city": _CITIES, "period": months(2022, 2025, "v.day")},
    ),
    QuestionKind(
        "Which visits at doctors of {field} {period.text} cost more than the average visit at the same doctor, over "
        "all years? Give the ids of the visits.",
        "SELECT v.id FROM visits v JOIN doctors d ON d.id = v.doctor_id "
        "WHERE d.field = '{field}' AND {period.sql} "
        "AND v.fee > (SELECT AVG(o.fee) FROM visits o WHERE o.doctor_id = v.doctor_id)",
        {"field": _FIELDS, "period": months(2022, 2025, "v.day")},
    ),
    QuestionKind(
        "For each patient from {city} who was ever found to have the finding {finding}: who was the doctor the last "
        "time? Give patient name, doctor name and day; of visits of the same day, the one with the higher id.",
        "SELECT patient, doctor, day FROM (SELECT p.name AS patient, d.name AS doctor, v.day, ROW_NUMBER() OVER "
        "(PARTITION BY p.id ORDER BY v.day DESC, v.id DESC) AS place FROM visits v JOIN patients p ON "
        "p.id = v.patient_id JOIN doctors d ON d.id = v.doctor_id "
        "WHERE p.city = '{city}' AND v.finding = '{finding}') WHERE place = 1",
        {"city": _CITIES, "finding": _FINDINGS},
    ),
    QuestionKind(
        "Which patients from {city} saw doctors of at least {least} different medical fields since the beginning of "
        "{year}? Give name and number of fields.",
        "SELECT p.name, COUNT(DISTINCT d.field) FROM patients p JOIN visits v ON v.patient_id = p.id "
        "JOIN doctors d ON d.id = v.doctor_id WHERE p.city = '{city}' AND v.day >= '{year}-01-01' "
        "GROUP BY p.id HAVING COUNT(DISTINCT d.field) >= {least}",
        {"least": range(2, 6), "city": _CITIES, "year": range(2022, 2025)},
    ),
)

DATABASE = Database(about="a clinic", schema=SCHEMA, fill=_fill, questions={1: _LEVEL_1, 2: _LEVEL_2, 3: _LEVEL_3})
