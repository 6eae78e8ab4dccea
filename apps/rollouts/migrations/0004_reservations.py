"""Reservations of limits, and the functions of PostgreSQL that take and count them in one short transaction."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

# Asynchronous commits: rollouts start only after a later, synchronous commit, which also flushes these.
_ELSEWHERE = """
CREATE FUNCTION rollouts_reserved_elsewhere(me bigint, own_collections bigint[], own_running int[])
RETURNS TABLE (collection bigint, slots bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE rollouts_reservation r SET slots = used.running
    FROM (
        SELECT mine.id, COALESCE(own.running, 0) AS running
        FROM rollouts_reservation mine
        LEFT JOIN unnest(own_collections, own_running) AS own(collection_id, running) USING (collection_id)
        WHERE mine.worker_id = me AND mine.slots > 0
    ) used
    WHERE r.id = used.id AND r.slots > used.running;
    RETURN QUERY
        SELECT r.collection_id, SUM(r.slots)
        FROM rollouts_reservation r JOIN rollouts_worker w ON w.id = r.worker_id
        WHERE r.worker_id <> me AND r.slots > 0 AND w.state IN ('active', 'draining')
        GROUP BY r.collection_id;
END $$
"""
# 0x47594D00 and above: "GYM", lock numbers that nothing else in this database uses. Each claim takes its locks in the
# same order, so claims do not deadlock. Each statement sees everything committed before it began, so the sums include
# everything reserved under these locks before.
_RESERVE = """
CREATE FUNCTION rollouts_reserve(me bigint, target bigint, wanted int, asked int, room int)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    model bigint; environment bigint; model_limit int; environment_limit int; own_limit int; granted int;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '2000', true);
    SELECT c.policy_model_id, c.environment_id, m.concurrency, e.concurrency, LEAST(c.concurrency, room)
    INTO model, environment, model_limit, environment_limit, own_limit
    FROM rollouts_collection c
    JOIN policies_policymodel m ON m.id = c.policy_model_id
    JOIN environments_environment e ON e.id = c.environment_id
    WHERE c.id = target AND c.state = 'running';
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    PERFORM pg_advisory_xact_lock(x'47594D01'::int, (model % 2147483647)::int);
    PERFORM pg_advisory_xact_lock(x'47594D02'::int, (environment % 2147483647)::int);
    IF own_limit IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(x'47594D03'::int, (target % 2147483647)::int);
    END IF;
    SELECT LEAST(
        wanted,
        model_limit - asked - COALESCE(SUM(r.slots) FILTER (WHERE c.policy_model_id = model), 0),
        environment_limit - COALESCE(SUM(r.slots) FILTER (WHERE c.environment_id = environment), 0),
        own_limit - COALESCE(SUM(r.slots) FILTER (WHERE c.id = target), 0)
    ) INTO granted
    FROM rollouts_reservation r
    JOIN rollouts_worker w ON w.id = r.worker_id
    JOIN rollouts_collection c ON c.id = r.collection_id
    WHERE r.slots > 0 AND w.state IN ('active', 'draining');
    IF granted <= 0 THEN
        RETURN 0;
    END IF;
    INSERT INTO rollouts_reservation (worker_id, collection_id, slots) VALUES (me, target, granted)
    ON CONFLICT (worker_id, collection_id) DO UPDATE SET slots = rollouts_reservation.slots + EXCLUDED.slots;
    RETURN granted;
END $$
"""


def create_functions(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute(_ELSEWHERE, None)
        editor.execute(_RESERVE, None)


def drop_functions(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute("DROP FUNCTION rollouts_reserved_elsewhere, rollouts_reserve")


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0003_compressed_payloads")]

    operations = [
        migrations.CreateModel(
            name="Reservation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("slots", models.PositiveIntegerField()),
                (
                    "collection",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="rollouts.collection",
                    ),
                ),
                (
                    "worker",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="rollouts.worker",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("worker", "collection"), name="reservation_is_one")]
            },
        ),
        migrations.RunPython(create_functions, drop_functions),
    ]
