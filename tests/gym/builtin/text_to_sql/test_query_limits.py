"""Untrusted queries: without limits, each would exhaust memory or time, or reach files."""

import pytest

from apps.gym.environments.text_to_sql.databases.registry import DATABASES, build_database
from apps.gym.environments.text_to_sql.query_guard import LONGEST_QUERY, QueryRefused, run_query

SHOP = build_database("shop", 1)
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
CUSTOMERS = ", ".join(f"customers c{at}" for at in range(20))


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (f"{ENDLESS} SELECT COUNT(*) FROM n", "stopped after 1,000,000 steps"),
        (f"{ENDLESS} SELECT i FROM n ORDER BY i DESC", "stopped after 1,000,000 steps"),
        (f"SELECT COUNT(*) FROM {CUSTOMERS}", "stopped after 1,000,000 steps"),
        ("SELECT group_concat(a.name) FROM customers a, customers b", "too big"),
        (f"SELECT 1 {' ' * LONGEST_QUERY}", "at most 5,000 are read"),
        (f"SELECT {'(' * 400}1{')' * 400}", "overflow|too large"),
        ("SELECT zeroblob(1000000000)", "not authorized to use function: zeroblob"),
        ("SELECT randomblob(9)", "not authorized to use function: randomblob"),
        ("SELECT load_extension('x')", "not authorized to use function: load_extension"),
        ("SELECT random()", "not authorized to use function: random: .* with the functions abs, avg,"),
        ("SELECT date('now')", "date may not ask for the time"),
        ("SELECT strftime('%Y')", "strftime may not ask for the time"),
        ("SELECT datetime('n' || 'OW', '-1 day')", "datetime may not ask for the time"),
        ("SELECT time('2024-05-01 12:00', 'localtime')", "time may not ask for the time or the place"),
        ("SELECT CURRENT_DATE", "not authorized to use function: CURRENT_DATE"),
        ("EXPLAIN SELECT 1", "EXPLAIN is not allowed"),
        ("-- so\n/* and\nso */ explain query plan SELECT 1", "EXPLAIN is not allowed"),
        ("SELECT * FROM pragma_table_info('customers')", "not authorized"),
        ("ATTACH 'other.db' AS other", "not authorized"),
        ("VACUUM INTO 'other.db'", "authorization denied"),
        ("PRAGMA query_only = OFF", "not authorized"),
        ("CREATE TEMP TABLE mine (a)", "not authorized"),
        ("DELETE FROM customers", "not authorized"),
        ("BEGIN", "not authorized"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT name FROM", "incomplete input"),
        ("SELECT '\ud800'", "surrogates"),
        ("SELECT 1\0", "null character"),
        ("", "not a query"),
    ],
)
def test_forbidden_queries_are_refused(query, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryRefused, match=told):
        run_query(SHOP, query, most_rows=10)
    assert list(tmp_path.iterdir()) == []
    assert run_query(SHOP, "SELECT COUNT(*) FROM customers", most_rows=10).rows == [(36,)]


def test_only_so_many_rows_are_read():
    table = run_query(SHOP, "SELECT id FROM customers ORDER BY id", most_rows=3)
    assert table == (["id"], [(1,), (2,), (3,)], True)
    assert run_query(SHOP, "SELECT id FROM customers", most_rows=36).cut is False


def test_a_value_that_is_bytes_is_shown_as_sql_writes_it():
    assert run_query(SHOP, "SELECT x'00ff', NULL, 1.5", most_rows=1).rows == [("x'00ff'", None, 1.5)]


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_is_the_same_for_the_same_seed(name):
    build_database.cache_clear()
    first = build_database(name, 4)
    build_database.cache_clear()
    assert build_database(name, 4) == first
    assert build_database(name, 5) != first


def test_functions_that_make_no_difference_to_where_and_when_a_query_is_run_are_allowed():
    query = (
        "SELECT date('2024-02-28', '+2 days'), strftime('%Y-%m', '2024-05-06'), julianday(NULL), printf('%02d', 7), "
        "format('%s!', 'a'), printf('%1000000d', 1), datetime('no date')"
    )
    assert run_query(SHOP, query, most_rows=1).rows == [("2024-03-01", "2024-05", None, "07", "a!", None, None)]
    ordered = "SELECT COUNT(*) FROM orders WHERE strftime('%Y', ordered_on) = '2024'"
    like = "SELECT COUNT(*) FROM orders WHERE ordered_on LIKE '2024-%'"
    assert run_query(SHOP, ordered, most_rows=1).rows == run_query(SHOP, like, most_rows=1).rows != [(0,)]
