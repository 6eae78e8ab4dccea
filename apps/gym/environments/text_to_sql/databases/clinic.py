"""A clinic: doctors, patients and visits."""

import random

from apps.gym.environments.text_to_sql.databases.protocol import Database, Question, Rows, day, months, people
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


def _patients_of(dice: random.Random) -> Question:
    city, year = dice.choice(_CITIES), dice.randint(1945, 2005)
    way, sign = dice.choice((("before", "<"), ("in or after", ">=")))
    return Question(
        f"Which patients from {city} were born {way} {year}? Give their names, by the alphabet.",
        f"SELECT name FROM patients WHERE city = '{city}' AND born {sign} {year} ORDER BY name",
        ordered=True,
    )


def _findings_in(dice: random.Random) -> Question:
    finding, year, fee = dice.choice(_FINDINGS), dice.randint(2022, 2025), dice.randint(6, 32) * 5
    return Question(
        f"How many visits of {year} with the finding {finding} cost more than {fee}?",
        f"SELECT COUNT(*) FROM visits WHERE finding = '{finding}' AND day LIKE '{year}-%' AND fee > {fee}",
    )


def _fees(dice: random.Random) -> Question:
    finding, year = dice.choice(_FINDINGS), dice.randint(2022, 2025)
    word, function = dice.choice((("highest", "MAX"), ("lowest", "MIN"), ("total", "SUM")))
    return Question(
        f"What is the {word} fee of visits with the finding {finding} in {year}? One number.",
        f"SELECT {function}(fee) FROM visits WHERE finding = '{finding}' AND day LIKE '{year}-%'",
    )


def _field_counts(dice: random.Random) -> Question:
    finding, city = dice.choice(_FINDINGS), dice.choice(_CITIES)
    told, condition = months(dice, 2022, 2025, "v.day", least=2)
    return Question(
        f"How many visits {told} of patients from {city} ended with the finding {finding}, in each medical field? Give "
        "field and number, only of fields that have any.",
        "SELECT d.field, COUNT(*) FROM visits v JOIN doctors d ON d.id = v.doctor_id "
        f"JOIN patients p ON p.id = v.patient_id WHERE p.city = '{city}' AND v.finding = '{finding}' "
        f"AND {condition} GROUP BY d.field",
    )


def _seen_by(dice: random.Random) -> Question:
    field, born = dice.choice(_FIELDS), dice.randint(1945, 2008)
    year = dice.randint(2022, 2025)
    return Question(
        f"Which patients born in or after {born} saw a doctor of {field} in {year}? Give each name once.",
        "SELECT DISTINCT p.name FROM patients p JOIN visits v ON v.patient_id = p.id JOIN doctors d ON d.id = "
        "v.doctor_id "
        f"WHERE p.born >= {born} AND d.field = '{field}' AND v.day LIKE '{year}-%'",
    )


def _earners(dice: random.Random) -> Question:
    year, least = dice.randint(2022, 2025), dice.randint(2, 12) * 50
    return Question(
        f"Which doctors took fees of {least} or more in all in {year}? Give name and sum, the highest sum first; "
        "of equal "
        "sums, by name.",
        "SELECT d.name, SUM(v.fee) AS fees FROM doctors d JOIN visits v ON v.doctor_id = d.id "
        f"WHERE v.day LIKE '{year}-%' GROUP BY d.id HAVING SUM(v.fee) >= {least} ORDER BY fees DESC, d.name",
        ordered=True,
    )


def _not_seen(dice: random.Random) -> Question:
    field, city = dice.choice(_FIELDS), dice.choice(_CITIES)
    told, condition = months(dice, 2022, 2025, "v.day")
    return Question(
        f"Which patients from {city} saw no doctor of {field} {told}? Give their names.",
        f"SELECT p.name FROM patients p WHERE p.city = '{city}' AND NOT EXISTS (SELECT 1 FROM visits v "
        "JOIN doctors d ON d.id = v.doctor_id "
        f"WHERE v.patient_id = p.id AND d.field = '{field}' AND {condition})",
    )


def _dearer(dice: random.Random) -> Question:
    field = dice.choice(_FIELDS)
    told, condition = months(dice, 2022, 2025, "v.day")
    return Question(
        f"Which visits at doctors of {field} {told} cost more than the average visit at the same doctor, over all "
        "years? Give the ids of the visits.",
        "SELECT v.id FROM visits v JOIN doctors d ON d.id = v.doctor_id "
        f"WHERE d.field = '{field}' AND {condition} "
        "AND v.fee > (SELECT AVG(o.fee) FROM visits o WHERE o.doctor_id = v.doctor_id)",
    )


def _latest(dice: random.Random) -> Question:
    city, finding = dice.choice(_CITIES), dice.choice(_FINDINGS)
    return Question(
        f"For each patient from {city} who was ever found to have the finding {finding}: who was the doctor the last "
        "time? Give patient name, doctor name and day; of visits of the same day, the one with the higher id.",
        "SELECT patient, doctor, day FROM (SELECT p.name AS patient, d.name AS doctor, v.day, ROW_NUMBER() OVER "
        "(PARTITION BY p.id ORDER BY v.day DESC, v.id DESC) AS place FROM visits v JOIN patients p ON "
        "p.id = v.patient_id JOIN doctors d ON d.id = v.doctor_id "
        f"WHERE p.city = '{city}' AND v.finding = '{finding}') WHERE place = 1",
    )


def _several(dice: random.Random) -> Question:
    least, city = dice.randint(2, 5), dice.choice(_CITIES)
    year = dice.randint(2022, 2024)
    return Question(
        f"Which patients from {city} saw doctors of at least {least} different medical fields since the beginning of "
        f"{year}? Give name and number of fields.",
        "SELECT p.name, COUNT(DISTINCT d.field) FROM patients p JOIN visits v ON v.patient_id = p.id "
        f"JOIN doctors d ON d.id = v.doctor_id WHERE p.city = '{city}' AND v.day >= '{year}-01-01' "
        f"GROUP BY p.id HAVING COUNT(DISTINCT d.field) >= {least}",
    )


DATABASE = Database(
    about="a clinic",
    schema=SCHEMA,
    fill=_fill,
    questions={
        1: (_patients_of, _findings_in, _fees),
        2: (_field_counts, _seen_by, _earners),
        3: (_not_seen, _dearer, _latest, _several),
    },
)
