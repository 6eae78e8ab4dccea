"""The stored rollouts of NeMo Gym are imported and verified again to the rewards that were recorded."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from apps.environments.models import Adapter
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.models import Reverification
from apps.rollouts.reverification.reverification_jobs import ReverifyRefused, queue_reverification
from apps.rollouts.reverification.reverification_spec import ReverificationOrder
from tests.deadlines import DEADLINE
from tests.factories import make_agent, make_dataset, make_environment
from tests.gym.verifiers.test_nemo_gym_rollouts import KINDS, STALE
from tests.nemo_gym import kinds
from tests.nemo_gym.servers import serving
from tests.rollouts.finished import finish_reverification
from tests.rollouts.stored import NAMES, needs_shared, shared_files, shared_rows

pytestmark = [pytest.mark.django_db, needs_shared]
TURNS = 20
"""Turns of the job, each of which ends after some seconds: a busy machine needs several."""


def imported(name, environment):
    dataset = make_dataset(rows=[], environment=environment)
    return import_rollouts(ImportOrder(dataset=dataset, agent=make_agent()), files=shared_files(name)).collection


def new_rewards(collection, **options):
    done = queue_reverification(ReverificationOrder(collection=collection, **options))
    for _ in range(TURNS):
        done = finish_reverification(reverification=done)
        if done.state != Reverification.State.QUEUED:
            break
    assert (done.state, done.failed) == (Reverification.State.READY, 0), list(done.rewards.values("error_message"))
    return list(done.rewards.order_by("rollout_id").values_list("new_reward", flat=True))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_with_a_verifier_of_ours_gets_the_recorded_reward_again(name):
    # Symbolic mathematics runs in processes, which a busy machine lets wait.
    patience = {"time_limit": 110.0} if KINDS[name]["type"] == "math" else {}
    environment = make_environment(adapter=Adapter.DECLARED, builtin="", verifier={**KINDS[name], **patience})
    again = new_rewards(imported(name, environment))
    recorded = [row.get("library_reward", row["reward"]) for row in shared_rows(name)]
    compared = [index for index in range(len(recorded)) if (name, index) not in STALE]
    assert len(compared) >= 4
    assert [again[index] for index in compared] == [recorded[index] for index in compared]


def test_components_come_back_with_their_names():
    name = "example_tool_call_multireward"
    environment = make_environment(adapter=Adapter.DECLARED, builtin="", verifier=KINDS[name])
    collection = imported(name, environment)
    done = finish_reverification(reverification=queue_reverification(ReverificationOrder(collection=collection)))
    assert done.changed == 0
    for reward in done.rewards.all():
        assert reward.new_components == reward.old_components != {}


@contextmanager
def faithful(kind):
    """A server of that kind in a thread of its own; gives its address."""
    started, ended, told = threading.Event(), threading.Event(), {}

    async def serve():
        async with serving(kind) as server:
            told["url"] = server.base_url
            started.set()
            while not ended.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(DEADLINE)
        yield told["url"]
    finally:
        ended.set()
        thread.join()


def far(url, adapter=Adapter.HTTP, **fields):
    return make_environment(adapter=adapter, builtin="", base_url=url, **fields)


def test_counted_state_is_verified_again_by_a_replay_of_the_calls(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    name = "example_session_state_mgmt"
    with faithful(kinds.SESSION_STATE) as url:
        collection = imported(name, far(url))
        with pytest.raises(ReverifyRefused, match="does not declare whether it needs session state"):
            queue_reverification(ReverificationOrder(collection=collection))
        assert new_rewards(collection, replay=True) == [row["reward"] for row in shared_rows(name)]
        # Without its calls every session stands where it was seeded.
        assert set(new_rewards(collection, force=True)) == {0.0}


def test_turns_of_a_gymnasium_server_are_verified_again_by_a_replay_of_the_steps(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    name = "example_multi_turn_gymnasium"
    with faithful(kinds.MULTI_TURN) as url:
        collection = imported(name, far(url, Adapter.GYMNASIUM))
        with pytest.raises(ReverifyRefused, match="needs the state of the attempt"):
            queue_reverification(ReverificationOrder(collection=collection))
        assert new_rewards(collection, replay=True) == [row["reward"] for row in shared_rows(name)]


def test_a_verifier_of_ours_needs_no_server_to_be_there(settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    environment = far("http://127.0.0.1:9", verifier=KINDS["example_multi_step"])
    assert new_rewards(imported("example_multi_step", environment)) == [1.0] * 5


def test_all_thirteen_files_are_tried():
    assert len(NAMES) == 13
