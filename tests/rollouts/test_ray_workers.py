"""The fleet of `manage.py ray_workers` keeps its size, with a Ray that needs no cluster."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.rollouts.management.commands import ray_workers
from apps.rollouts.metrics.fleet_gauges import count_unfinished
from apps.rollouts.models import Collection, Worker
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.ray_fleet import RayFleet
from tests.factories import make_agent, make_dataset, make_policy_model, make_row

pytestmark = pytest.mark.django_db


class ActorUnavailable(Exception):
    pass


class ActorLost(Exception):
    pass


class FakeActor:
    """An actor whose worker has a pid, or an error, or is not placed yet."""

    def __init__(self, pid: int) -> None:
        self.state: Any = ("node", pid, None)
        self.drained = 0
        self.look = SimpleNamespace(remote=lambda: self)
        self.drain = SimpleNamespace(remote=self._drain)

    def _drain(self) -> None:
        self.drained += 1


class FakeRay:
    exceptions = SimpleNamespace(ActorUnavailableError=ActorUnavailable, RayActorError=ActorLost)

    def __init__(self) -> None:
        self.actors: list[FakeActor] = []
        self.killed: list[FakeActor] = []

    def start(self) -> FakeActor:
        self.actors.append(FakeActor(len(self.actors) + 1))
        return self.actors[-1]

    def wait(self, answers: list[FakeActor], timeout: float) -> tuple[list[FakeActor], list[FakeActor]]:
        return [actor for actor in answers if actor.state], [actor for actor in answers if not actor.state]

    def get(self, answer: FakeActor) -> Any:
        if isinstance(answer.state, Exception):
            raise answer.state
        return answer.state

    def kill(self, actor: FakeActor) -> None:
        self.killed.append(actor)


@pytest.fixture
def ray() -> FakeRay:
    return FakeRay()


@pytest.fixture
def fleet(ray: FakeRay) -> RayFleet:
    return RayFleet(ray, start=ray.start, write=print)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ray_workers.Command:
    # Closing it would end the transaction of the test.
    monkeypatch.setattr(ray_workers, "connection", SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(ray_workers, "LOOK_SECONDS", 0)
    return ray_workers.Command()


def plan(*, repeats: int, group: str = "", **fields: Any) -> Collection:
    model = make_policy_model(slug=f"model-{repeats}-{group}", worker_group=group, **fields)
    dataset = make_dataset([make_row()])
    return plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=model, repeats=repeats))


def look_once(command: ray_workers.Command, fleet: RayFleet, **options: Any) -> int:
    """Return the number of active workers after one look."""
    stopping = threading.Event()
    stopping.set()
    given = {"min": 0, "max": 4, "seats": 10, "group": "", "idle_seconds": 0}
    command.keep_size(fleet, given | options, stopping)
    return len(fleet.active)


def test_unfinished_rollouts_count_for_the_group_and_within_the_concurrency() -> None:
    plan(repeats=30, concurrency=20)
    plan(repeats=7, group="ray")
    paused = plan(repeats=9, group="ray")
    Collection.objects.filter(pk=paused.pk).update(state="paused", pause_reason="asked")
    assert (count_unfinished(""), count_unfinished("ray"), count_unfinished("other")) == (20, 7, 0)
    Collection.objects.update(completed=3, failed=2)
    assert count_unfinished("ray") == 2


def test_the_fleet_has_workers_for_all_unfinished_rollouts_between_min_and_max(command, fleet) -> None:
    assert look_once(command, fleet) == 0
    assert look_once(command, fleet, min=1) == 1
    plan(repeats=21)
    assert look_once(command, fleet) == 3
    plan(repeats=100)
    assert look_once(command, fleet) == 4


def test_lost_and_ended_workers_are_replaced(command, fleet, ray) -> None:
    assert look_once(command, fleet, min=3) == 3
    ray.actors[0].state = ActorLost("its node is dead")
    ray.actors[1].state = ("node", 2, 0)
    ray.actors[2].state = ActorUnavailable("retry")
    assert look_once(command, fleet, min=3) == 3
    assert [member.actor for member in fleet.members] == [ray.actors[2], *ray.actors[3:]]
    assert (len(ray.actors), ray.killed) == (5, [ray.actors[1]])


def test_a_surplus_drains_after_a_while_least_busy_first_and_finishes_its_rollouts(command, fleet, ray) -> None:
    assert look_once(command, fleet, min=4) == 4
    ray.actors[3].state = None  # waits for a node
    for pid, busy in ((1, 5), (2, 0), (3, 7)):
        Worker.objects.create(host="node", pid=pid, seats=10, busy=busy)
    Worker.objects.create(host="elsewhere", pid=3, seats=10)
    assert look_once(command, fleet, min=1, idle_seconds=60) == 4
    assert look_once(command, fleet, min=1) == 1
    assert ray.killed == [ray.actors[3]]
    assert set(Worker.objects.filter(state="draining").values_list("pid", flat=True)) == {1, 2}
    assert [actor.drained for actor in ray.actors] == [0, 0, 0, 0], "SIGTERM would end rollouts after the grace period"
    ray.actors[0].state = ("node", 1, 0)
    fleet.look()
    assert len(fleet.members) == 2


def test_draining_all_sends_sigterm_and_cancels_unplaced_actors(command, fleet, ray) -> None:
    look_once(command, fleet, min=2)
    ray.actors[1].state = None
    fleet.look()
    fleet.drain()
    assert ([actor.drained for actor in ray.actors], ray.killed) == ([1, 0], [ray.actors[1]])
    ray.actors[0].state = ("node", 1, 0)
    fleet.look()
    assert fleet.members == []


def test_without_ray_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(CommandError, match=r"pip install --editable '\.\[ray\]'"):
        call_command("ray_workers", "--max", "2")


@pytest.mark.parametrize(
    "options", [["--min", "3", "--max", "2"], ["--max", "2", "--resources", "[]"], ["--max", "2", "--resources", "{"]]
)
def test_impossible_options_are_refused(options) -> None:
    with pytest.raises(CommandError):
        call_command("ray_workers", *options)
