"""Each kind of dataset as its users have it: a file is uploaded, a collection planned, a worker drives the server."""

import io

import orjson
import pytest
from asgiref.sync import async_to_sync, sync_to_async

from apps.environments.environment_changes import save_environment
from apps.environments.environment_health import probe_due_environments
from apps.environments.models import Environment
from apps.gym.traces.events import Verification
from apps.policies.models import PolicyModel
from apps.rollouts.models import Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from apps.tasks.dataset_changes import create_dataset
from apps.tasks.models import Upload
from apps.tasks.upload_jobs import upload_file
from tests.factories import make_agent
from tests.nemo_gym import kinds, solving
from tests.nemo_gym.attempts import needs_shared, rows_of
from tests.nemo_gym.model_server import playing
from tests.nemo_gym.servers import serving

pytestmark = pytest.mark.usefixtures("migrated")

KINDS = [
    (kinds.SINGLE_TOOL_CALL, solving.weather, 1.0),
    (kinds.SESSION_STATE, solving.count, 1.0),
    (kinds.MULTI_STEP, solving.synonyms, 1.0),
    (kinds.MULTIREWARD, solving.one_call, 2.0),
    (kinds.MCQA, solving.letter, 1.0),
    (kinds.STRING_MATCH, solving.string, 1.0),
    (kinds.XLAM, solving.calls, 1.0),
    (kinds.CALENDAR, solving.calendar, 1.0),
    (kinds.REASONING, solving.reasoning, 1.0),
    (kinds.MATH, solving.box, 1.0),
    (kinds.MULTI_TURN, solving.follow_ups, 1.0),
    (kinds.blackjack("9TT6T"), solving.stands, 1.0),
    (kinds.workplace({}), solving.first_tool, 1.0),
]


def collect(kind, moves, rows, settings):
    """The rollouts of a finished collection, two at each row."""
    settings.OUTBOUND_ALLOW, settings.WORKER_BACKGROUND_JOBS = ["127.0.0.1"], []

    def prepare(server_url, model_url):
        adapter = "gymnasium" if kind.step is not None else "http"
        environment = Environment(slug="lab", name="Lab", adapter=adapter, base_url=server_url)
        save_environment(environment=environment, user=None)
        dataset = create_dataset(slug="rows", name="Rows", environment=environment)
        file = io.BytesIO(b"\n".join(orjson.dumps(row) for row in rows))
        upload = upload_file(dataset=dataset, stream=file, filename=f"{kind.name}.jsonl")
        assert (upload.state, upload.errors) == (Upload.State.READY, [])
        model = PolicyModel.objects.create(
            slug="solver", name="Solver", wire="responses", base_url=model_url, model_name="solver"
        )
        probe_due_environments()
        assert Environment.objects.get(slug="lab").health == "healthy"
        agent = make_agent(parallel_tool_calls=False)
        return plan_collection(Plan(dataset=dataset, agent=agent, policy_model=model, repeats=2))

    async def run():
        async with (
            serving(kind) as server,
            playing(rows, moves, observations=int(kind.name == "blackjack")) as model_url,
        ):
            planned = await sync_to_async(prepare)(server.base_url, model_url)
            return await finish_collection(planned, progress=lambda _: None), server

    collection, server = async_to_sync(run)()
    assert (collection.completed, collection.failed, collection.retried) == (2 * len(rows), 0, 0)
    assert server.stale == 0
    return list(Rollout.objects.filter(collection=collection).order_by("task__index", "repeat"))


@pytest.mark.parametrize("own", [True, pytest.param(False, marks=needs_shared)], ids=["own", "theirs"])
@pytest.mark.parametrize(("kind", "moves", "reward"), KINDS, ids=[kind.name for kind, _, _ in KINDS])
def test_a_dataset_runs_from_its_file_to_its_rewards(settings, kind, moves, reward, own):
    rollouts = collect(kind, moves, rows_of(kind.name, own=own), settings)
    assert {rollout.status for rollout in rollouts} == {"completed"}
    if kind.name != "workplace_assistant":  # its rule needs its databases
        assert {rollout.reward for rollout in rollouts} == {reward}
    stops = {"environment_done"} if kind.step is not None else {"answered"}
    assert {rollout.stop_reason for rollout in rollouts} == stops
    assert isinstance(rollouts[0].trace()[-1], Verification)


def test_components_and_details_are_stored_with_the_rollout(settings):
    (first, _) = collect(kinds.MULTIREWARD, solving.one_call, rows_of(kinds.MULTIREWARD.name, own=True), settings)
    assert first.components == {"correctness": 1.0, "schema_valid": 1.0, "format": 0.0}
    assert first.trace()[-1].details["predicted_calls"] == [{"name": "get_weather", "arguments": {"city": "Turin"}}]
