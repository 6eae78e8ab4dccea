"""Workers of a group run what belongs to its models and environments, and workers without one the rest."""

import asyncio

import pytest
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from apps.environments.models import Environment
from apps.rollouts.engine.worker import RolloutWorker
from apps.rollouts.models import Collection, Rollout, Worker
from apps.rollouts.notifications import WORKER_CHANNEL
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from tests.deadlines import DEADLINE
from tests.factories import make_agent, make_dataset, make_policy_model, make_row

pytestmark = pytest.mark.usefixtures("migrated")


@pytest.fixture(autouse=True)
def quick_engine(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.WORKER_GRACE_SECONDS = 5


def plan(name: str, *, model_group: str = "", environment_group: str = "") -> Collection:
    environment = Environment.objects.get(slug="exact_match")
    environment.pk, environment.slug, environment.worker_group = None, f"{name}-environment", environment_group
    environment.save()
    return plan_collection(
        Plan(
            name=name,
            dataset=make_dataset([make_row()], environment=environment),
            agent=make_agent(),
            policy_model=make_policy_model(worker_group=model_group),
            repeats=3,
        )
    )


def finished_by(group: str, *, expected: int) -> set[str]:
    """The names of the collections that a worker of this group finishes, and what it leaves it leaves queued."""

    async def work() -> None:
        worker = RolloutWorker(None, [WORKER_CHANNEL], get_channel_layer(), seats=8, group=group)
        working = asyncio.create_task(worker.handle())
        async with asyncio.timeout(DEADLINE):
            while await Collection.objects.filter(state=Collection.State.COMPLETED).acount() < expected:
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.5)  # one more poll: what it may not take it would take now
        worker.stop()
        await working

    async_to_sync(work)()
    return set(Collection.objects.filter(state=Collection.State.COMPLETED).values_list("name", flat=True))


def test_each_worker_finishes_what_belongs_to_its_group():
    plan("open")
    plan("gpu model", model_group="gpu")
    plan("gpu environment", environment_group="gpu")
    plan("both gpu", model_group="gpu", environment_group="gpu")
    moved = plan("of two groups", model_group="gpu")
    Environment.objects.filter(pk=moved.environment_id).update(worker_group="windows")

    assert finished_by("gpu", expected=3) == {"gpu model", "gpu environment", "both gpu"}
    assert finished_by("", expected=4) == {"gpu model", "gpu environment", "both gpu", "open"}
    assert list(Worker.objects.order_by("pk").values_list("group", "state")) == [("gpu", "stopped"), ("", "stopped")]
    left = Rollout.objects.exclude(status=Rollout.Status.COMPLETED)
    assert set(left.values_list("collection__name", "status", "attempt")) == {("of two groups", "queued", 0)}
    assert left.count() == 3
