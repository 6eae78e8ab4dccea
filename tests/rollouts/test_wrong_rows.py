"""Rows that make no sense are refused by the database itself, whoever writes them: here SQL, without a model."""

import pytest
from django.db import IntegrityError, connection, transaction

from tests.factories import (
    make_agent,
    make_breaker,
    make_collection,
    make_environment,
    make_policy_model,
    make_rollout,
    make_worker,
)

pytestmark = pytest.mark.django_db

INFINITE = "9e999" if connection.vendor == "sqlite" else "'Infinity'::float8"
# SQLite has no NaN: it stores NULL, which these columns refuse.
NAN = "(9e999 - 9e999)" if connection.vendor == "sqlite" else "'NaN'::float8"
MAKERS = {
    "rollouts_collection": lambda: make_collection(total=3, completed=1, failed=1),
    "rollouts_rollout": lambda: make_rollout(make_collection()),
    "rollouts_worker": make_worker,
    "rollouts_breaker": lambda: make_breaker(policy_model=make_policy_model()),
    "policies_policymodel": make_policy_model,
    "environments_environment": make_environment,
    "agents_agent": make_agent,
}
WRONG = {
    "rollouts_collection": [
        *(
            "state = 'bogus'",
            "state = 'paused', pause_reason = 'because'",
            "state = 'paused'",
            "pause_reason = 'asked'",
        ),
        *("repeats = 0", "concurrency = 0", "max_attempts = 0", "max_attempts = 21", "priority = 1001"),
        *("rollout_timeout = -1", "rollout_timeout = 0", f"rollout_timeout = {NAN}", f"rollout_timeout = {INFINITE}"),
        *("max_seconds = 0", "max_tokens = 0", "max_cost = -1", f"max_cost = {INFINITE}"),
        *(f"cost = {NAN}", f"cost = {INFINITE}", "cost = -1", f"reward_sum = {NAN}", f"reward_sum = -{INFINITE}"),
        *("completed = 4", "failed = 3", "cancelled = 2", "total = 1"),
        *("state = 'completed'", "state = 'cancelled'"),
    ],
    "rollouts_rollout": [
        *(f"reward = {INFINITE}", f"reward = -{INFINITE}", "status = 'bogus', reward = NULL, stop_reason = ''"),
        *("status = 'failed', reward = NULL, error_kind = 'bogus'", "stop_reason = 'bogus'"),
        *("attempt = 0", "finished_at = NULL"),
        "status = 'failed', reward = NULL, error_kind = 'timed_out', attempt = 0",
    ],
    "rollouts_worker": ["state = 'bogus'", "seats = 0"],
    "rollouts_breaker": ["state = 'bogus'"],
    "policies_policymodel": [
        *("concurrency = 0", "call_timeout = 0", f"call_timeout = {NAN}", f"connect_timeout = {INFINITE}"),
        *("max_tries = 0", "mistake_rate = 1.1", f"input_price = {NAN}", "output_price = -1", "health = 'bogus'"),
        f"cached_input_price = {INFINITE}",
        "cache_write_price = -1",
    ],
    "environments_environment": [
        *("concurrency = 0", "call_timeout = 0", f"connect_timeout = {NAN}", f"verify_timeout = {INFINITE}"),
        *("max_tries = 0", "health = 'bogus'"),
    ],
    "agents_agent": ["max_steps = 0", f"time_limit = {NAN}", f"time_limit = {INFINITE}", "token_limit = 0"],
}
if connection.vendor == "postgresql":
    WRONG["rollouts_rollout"].append(f"reward = {NAN}")
    WRONG["rollouts_collection"].append(f"max_cost = {NAN}")


@pytest.mark.parametrize(("table", "wrong"), [(table, wrong) for table, rows in WRONG.items() for wrong in rows])
def test_a_wrong_row_cannot_be_written_by_sql(table, wrong):
    row = MAKERS[table]()
    with connection.cursor() as cursor, pytest.raises(IntegrityError), transaction.atomic():
        cursor.execute(f"UPDATE {table} SET {wrong} WHERE id = %s", [row.pk])


def test_right_rows_can():
    for table, right in {
        "rollouts_collection": "state = 'paused', pause_reason = 'max_cost', max_cost = 0, cancelled = 1, cost = 1e300",
        "rollouts_rollout": "reward = -1e100, stop_reason = 'token_limit'",
        "rollouts_worker": "state = 'lost'",
        "rollouts_breaker": "state = 'half_open'",
        "policies_policymodel": "call_timeout = 0.05, cached_input_price = NULL",
        "environments_environment": "verify_timeout = 0.2",
        "agents_agent": "max_steps = 1000",
    }.items():
        row = MAKERS[table]()
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE {table} SET {right} WHERE id = %s", [row.pk])
            assert cursor.rowcount == 1, table
