"""Rewards and components beyond ±1e100, which earlier versions stored: figures square them, and had no end.

They become ±1e100, so that order and counts stay; the trace still says what the verifier gave.
"""

import math
from typing import Any

from django.apps.registry import Apps
from django.db import connections, migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

MOST = 1e100
_CHUNK = 500
_BEYOND = {
    "sqlite": "EXISTS (SELECT 1 FROM json_each({column}) WHERE type IN ('integer', 'real') AND abs(value + 0.0) > 1e100)",
    "postgresql": (
        "EXISTS (SELECT 1 FROM jsonb_each({column}) AS part WHERE CASE jsonb_typeof(part.value)"
        " WHEN 'number' THEN abs(part.value::numeric) > 1e100::numeric ELSE false END)"
    ),
}
_COLUMNS = {
    "Rollout": (["reward"], ["components"]),
    "ReverifiedReward": (["old_reward", "new_reward", "difference"], ["old_components", "new_components"]),
}


def bound(value: Any) -> Any:
    return math.copysign(MOST, value) if isinstance(value, int | float) and abs(value) > MOST else value


def bound_rewards(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    database = schema_editor.connection.alias
    touched: set[int] = set()
    for name, (numbers, objects) in _COLUMNS.items():
        model = apps.get_model("rollouts", name)
        rows = model._default_manager.using(database)
        for column in numbers:
            for beyond, edge in ((f"{column}__gt", MOST), (f"{column}__lt", -MOST)):
                found = rows.filter(**{beyond: edge})
                if name == "Rollout":
                    touched.update(found.order_by().values_list("collection_id", flat=True).distinct())
                found.update(**{column: edge})
        for column in objects:
            ids = _find_beyond(database, model._meta.db_table, column)
            for start in range(0, len(ids), _CHUNK):
                for row in rows.filter(pk__in=ids[start : start + _CHUNK]):
                    kept = {part: bound(value) for part, value in getattr(row, column).items()}
                    rows.filter(pk=row.pk).update(**{column: kept})
    rollouts = apps.get_model("rollouts", "Rollout")._default_manager.using(database)
    for pk in touched:
        rewards = rollouts.filter(collection=pk, reward__isnull=False).order_by().values_list("reward", flat=True)
        total = math.fsum(rewards.iterator())
        apps.get_model("rollouts", "Collection")._default_manager.using(database).filter(pk=pk).update(reward_sum=total)


def _find_beyond(database: str, table: str, column: str) -> list[int]:
    connection = connections[database]
    beyond = _BEYOND[connection.vendor].format(column=column)
    with connection.cursor() as cursor:
        # No value is formatted in: these are the names above.
        cursor.execute(f"SELECT id FROM {table} WHERE {beyond} ORDER BY id")  # noqa: S608
        return [row[0] for row in cursor.fetchall()]


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0011_redactions")]

    operations = [migrations.RunPython(bound_rewards, migrations.RunPython.noop)]
