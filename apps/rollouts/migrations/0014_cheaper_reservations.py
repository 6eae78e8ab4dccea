"""Functions that reserve and release slots with less work for PostgreSQL.

The functions of migration 4 are not dropped, because workers of the previous version may still run.
"""

from typing import Any

from django.db import migrations

# Asynchronous commits: rollouts start only after a later, synchronous commit, which also flushes these.
_RELEASE = """
CREATE FUNCTION rollouts_release(me bigint, own_collections bigint[], own_running int[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE rollouts_reservation
    SET slots = COALESCE(own_running[array_position(own_collections, collection_id)], 0)
    WHERE worker_id = me AND slots > COALESCE(own_running[array_position(own_collections, collection_id)], 0);
END $$
"""
# 0x47594D00 and above: "GYM", lock numbers that nothing else in this database uses. Each claim takes its locks in the
# same order, so claims do not deadlock. Each statement sees everything committed before it began, so the sums include
# everything reserved under these locks before.
_RESERVE = """
CREATE FUNCTION rollouts_reserve(
    me bigint, target bigint, wanted int, asked int, room int, own_collections bigint[], own_running int[]
)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    model bigint; environment bigint; model_limit int; environment_limit int; own_limit int; granted int;
BEGIN
    PERFORM rollouts_release(me, own_collections, own_running);
    PERFORM set_config('lock_timeout', '2000', true);
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
        model_limit - asked - COALESCE(SUM(sums.slots) FILTER (WHERE c.policy_model_id = model), 0),
        environment_limit - COALESCE(SUM(sums.slots) FILTER (WHERE c.environment_id = environment), 0),
        own_limit - COALESCE(SUM(sums.slots) FILTER (WHERE c.id = target), 0)
    ) INTO granted
    FROM (
        SELECT r.collection_id, SUM(r.slots) AS slots FROM rollouts_reservation r
        WHERE r.slots > 0
            AND r.worker_id = ANY(ARRAY(SELECT id FROM rollouts_worker WHERE state IN ('active', 'draining')))
        GROUP BY r.collection_id
    ) sums JOIN rollouts_collection c ON c.id = sums.collection_id;
    IF granted <= 0 THEN
        RETURN 0;
    END IF;
    INSERT INTO rollouts_reservation (worker_id, collection_id, slots) VALUES (me, target, granted)
    ON CONFLICT (worker_id, collection_id) DO UPDATE SET slots = rollouts_reservation.slots + EXCLUDED.slots;
    RETURN granted;
END $$
"""
_DROP = "DROP FUNCTION rollouts_release, rollouts_reserve(bigint, bigint, int, int, int, bigint[], int[])"


def create_functions(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute(_RELEASE, None)
        editor.execute(_RESERVE, None)


def drop_functions(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute(_DROP, None)


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0013_throttle_limited_since")]

    operations = [migrations.RunPython(create_functions, drop_functions)]
