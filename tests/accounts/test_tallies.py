"""Rate limits count over several processes, each with its own limiter."""

import threading
import time

import pytest
from django.db import connection

from apps.accounts.models import Tally
from apps.accounts.request_limits import Limiter
from apps.accounts.tallies import add, forget, network_of, sweep


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is told."""
    now = [1_800_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


@pytest.mark.django_db
def test_a_while_begins_with_the_first_count_and_ends_for_all_at_once(clock):
    assert add("ada", seconds=60) == (1, 1_800_000_060)
    clock[0] += 59
    assert add("ada", 5, seconds=60) == (6, 1_800_000_060)
    assert add("eve", seconds=60) == (1, 1_800_000_119)
    clock[0] += 1
    assert add("ada", seconds=60) == (1, 1_800_000_120)
    forget("ada")
    assert add("ada", seconds=60).number == 1


@pytest.mark.django_db
def test_subjects_are_not_stored_and_expired_tallies_are_deleted(clock):
    add("sign-in 192.0.2.7 my-password", seconds=60)
    assert "my-password" not in str(list(Tally.objects.values()))
    assert sweep() == 0
    clock[0] += 61
    assert (sweep(), Tally.objects.count()) == (1, 0)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("unix socket", "unix socket"),
        ("", ""),
    ],
)
def test_an_address_counts_for_its_network(address, network):
    assert network_of(address) == network


@pytest.mark.django_db
def test_one_process_admits_exactly_the_limit_and_says_when_to_come_back(clock):
    limiter = Limiter("caller")
    assert [limiter.take("ada", 1000) for _ in range(1000)] == [0.0] * 1000
    clock[0] += 20
    assert (limiter.take("ada", 1000), limiter.wait("ada", 1000)) == (40.0, 40.0)
    assert (limiter.take("eve", 1000), limiter.wait("eve", 1000)) == (0.0, 0.0)
    clock[0] += 41
    assert limiter.take("ada", 1000) == 0.0


@pytest.mark.django_db
@pytest.mark.parametrize("limit", [1, 3, 10, 50, 1000, 6000])
def test_several_processes_share_one_limit(clock, limit):
    processes = [Limiter("caller") for _ in range(4)]
    admitted = 0
    for number in range(max(12, limit * 3)):
        clock[0] += 10 / limit  # all of it in half a minute
        admitted += processes[number % 4].take("ada", limit) == 0.0
    # What a process has not told yet, close to the limit: a thousandth of it.
    assert limit <= admitted <= limit + 4 * max(1, limit // 1000)
    assert all(process.wait("ada", limit) > 0 for process in processes)


@pytest.mark.django_db
def test_a_limit_of_zero_is_none_and_asks_nothing_of_the_database(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert [Limiter("caller").take("ada", 0) for _ in range(10)] == [0.0] * 10


@pytest.mark.django_db
def test_the_database_is_told_once_a_second_and_each_hundredth(clock, django_assert_num_queries, monkeypatch):
    monkeypatch.setattr("apps.accounts.tallies.SWEEP_ONE_IN", 10**9)
    limiter = Limiter("caller")
    with django_assert_num_queries(10):
        for _ in range(600):
            limiter.take("ada", 6000)
    with django_assert_num_queries(1):
        clock[0] += 1.0
        limiter.take("ada", 6000)


@pytest.mark.django_db(transaction=True)
def test_threads_of_one_process_admit_no_more_than_the_limit():
    limiter, admitted = Limiter("caller"), []

    def ask():
        admitted.extend(limiter.take("ada", 2000) == 0.0 for _ in range(1500))
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 3000
    # What is on its way to the database when the last are asked may be counted twice for a moment, never not at all.
    assert 1960 <= sum(admitted) <= 2000


@pytest.mark.django_db
def test_the_database_is_told_each_hundredth_of_the_limit_and_each_thousandth_close_to_it(
    clock, django_assert_num_queries
):
    """`make bench BENCH=calls` holds the time that a request costs to a budget."""
    limiter = Limiter("caller")
    with django_assert_num_queries(90 + 90):
        assert [limiter.take("ada", 6000) for _ in range(5940)] == [0.0] * 5940


def test_callers_that_are_remembered_are_bounded(clock, monkeypatch):
    monkeypatch.setattr("apps.accounts.request_limits.MAX_CALLERS", 10)
    limiter = Limiter("address")
    for number in range(25):
        limiter.take(str(number), 6000)
        clock[0] += 5
    assert len(limiter._windows) <= 10
