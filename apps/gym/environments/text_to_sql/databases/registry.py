"""The databases by name, and their serialised content by seed."""

import random
import sqlite3
from contextlib import closing
from functools import lru_cache

from apps.gym.environments.text_to_sql.databases import clinic, library, shop
from apps.gym.environments.text_to_sql.databases.protocol import Database

DATABASES: dict[str, Database] = {
    "clinic": clinic.DATABASE,
    "library": library.DATABASE,
    "shop": shop.DATABASE,
}
_KEPT = 96
"""Databases in the cache, about 50 kB each."""


@lru_cache(maxsize=_KEPT)
def build_database(name: str, seed: int) -> bytes:
    """Return the serialised database. The same seed gives the same bytes."""
    database = DATABASES[name]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(database.schema)
        for table, rows in database.fill(random.Random(f"{name}/{seed}")).items():
            places = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
        connection.commit()
        return connection.serialize()
