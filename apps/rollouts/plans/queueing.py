"""Store planned rollouts by the chunk: one statement, no model instances, constant memory."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from django.db import connection

from apps.rollouts.models import Rollout


class Planned(NamedTuple):
    """A rollout to be: what tells it from the others of its collection."""

    task_id: int
    repeat: int
    seed: int


def insert_rollouts(*, collection_id: int, status: str, chunk: Sequence[Planned]) -> None:
    """Store the chunk as rows of this collection that nobody has claimed; every other column has its default."""
    columns, defaults = _defaults(connection.vendor)
    given = [collection_id, status, *defaults]
    names = ", ".join(["collection_id", "status", *columns, "task_id", "repeat", "seed"])
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                f"INSERT INTO rollouts_rollout ({names}) SELECT {', '.join(['%s'] * len(given))}, v.*"  # noqa: S608
                " FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) v",
                [*given, *map(list, zip(*chunk, strict=True))],
            )
        else:
            places = ", ".join(["%s"] * (len(given) + len(Planned._fields)))
            insert = f"INSERT INTO rollouts_rollout ({names}) VALUES ({places})"  # noqa: S608
            cursor.executemany(insert, [(*given, *planned) for planned in chunk])


@cache
def _defaults(vendor: str) -> tuple[list[str], list[Any]]:
    """The other columns and their defaults, as this database takes them: the tables have none of their own."""
    varying = {"id", "collection_id", "status", *Planned._fields}
    fields = [field for field in Rollout._meta.concrete_fields if field.column not in varying]
    defaults = [field.get_db_prep_save(field.get_default(), connection) for field in fields]
    return [f'"{field.column}"' for field in fields], defaults
