"""Pages and API name the collections that take all seats or slots of a waiting collection."""

import pytest
from django.test import Client

from apps.rollouts.engine.worker_seats import external_seats
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_policy_model,
    make_rollout,
    make_row,
    make_user,
    make_worker,
)

pytestmark = pytest.mark.django_db
RUNNING = {"status": "running", "reward": None, "stop_reason": "", "finished_at": None, "trace": []}
QUEUED = {**RUNNING, "status": "queued", "attempt": 0, "started_at": None}


@pytest.fixture
def client():
    client = Client()
    client.force_login(make_user())
    return client


@pytest.fixture
def dataset():
    return make_dataset([make_row(f"What is {n}?", str(n)) for n in range(4)])


def waiting(dataset, **fields):
    collection = make_collection(dataset=dataset, total=1, **fields)
    make_rollout(collection, **QUEUED)
    return collection


def hold(dataset, worker, count, **fields):
    collection = make_collection(dataset=dataset, total=count, **fields)
    for _ in range(count):
        make_rollout(collection, lease=worker.pk, **RUNNING)
    return collection


def held(client, collection):
    return client.get(f"/api/v1/collections/{collection.pk}/").json()["held_back_by"]


def test_idle_external_attempts_are_named_on_page_and_api(client, dataset):
    worker = make_worker(seats=4)
    built_in = hold(dataset, worker, 1, agent=make_agent(slug="loop"))
    collection = waiting(dataset)
    assert held(client, collection) == []
    idle = hold(dataset, worker, 3, agent=make_agent(slug="idle", kind="external"))
    told = (
        f"all 4 seats are taken: 3 by collection {idle.pk} (external agent idle), 1 by collection {built_in.pk} "
        "(built-in loop loop); rollouts start as some become free"
    )
    assert held(client, collection) == [f"workers: {told}"]
    assert f"Workers: {told}" in client.get(f"/collections/{collection.pk}/").text


@pytest.mark.parametrize("name", ["policy_model", "environment"])
def test_slots_of_a_model_or_environment_are_named(client, dataset, name):
    model = make_policy_model(name="Small", concurrency=2 if name == "policy_model" else 64)
    if name == "environment":
        dataset.environment.concurrency = 2
        dataset.environment.save()
    holder = hold(dataset, make_worker(seats=64), 2, policy_model=model)
    [reason] = held(client, waiting(dataset, policy_model=model))
    assert reason.startswith(name.replace("_", " "))
    assert f"all 2 slots are taken: 2 by collection {holder.pk}" in reason


def test_seats_of_another_group_and_own_rollouts_hold_nothing(client, dataset):
    hold(dataset, make_worker(seats=2, group="gpu"), 2)
    assert held(client, waiting(dataset)) == []
    worker = make_worker(seats=3)
    hold(dataset, worker, 2)
    own = hold(dataset, worker, 1)
    make_rollout(own, **QUEUED)
    assert held(client, own) == []


def test_more_than_three_holders_are_counted(client, dataset):
    worker = make_worker(seats=5)
    for _ in range(5):
        hold(dataset, worker, 1)
    assert "), and 2 more;" in held(client, waiting(dataset))[0]


@pytest.mark.parametrize(("seats", "share", "wanted"), [(256, 0.9, 230), (4, 0.9, 3), (1, 0.9, 1), (4, 1.0, 4)])
def test_external_agents_get_a_share_of_the_seats(settings, seats, share, wanted):
    settings.EXTERNAL_SHARE = share
    assert external_seats(seats) == wanted
