"""A collection that is waited for while its model server is a child of ours, which ends."""

import sys

import pytest

from apps.environments.models import Environment
from apps.policies.vllm_process import ServerBroken, ServerProcess, free_port
from apps.rollouts.management.commands.collect import collect_with_bar
from apps.rollouts.models import Collection
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from tests.factories import make_agent, make_dataset, make_policy_model, make_row

pytestmark = pytest.mark.usefixtures("migrated")
# As a server does whose engine died: it says so and ends in order.
ENDING = "import time; time.sleep(1); print('the engine died')"


def test_the_wait_ends_with_the_last_words_of_a_server_that_ended(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.WORKER_GRACE_SECONDS = 1
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    collection = plan_collection(
        Plan(
            dataset=make_dataset([make_row()], environment=Environment.objects.get(slug="calculator")),
            agent=make_agent(),
            policy_model=make_policy_model(
                provider="vllm", model_name="gone", base_url=f"http://127.0.0.1:{free_port()}/v1"
            ),
            repeats=4,
        )
    )
    server = ServerProcess([sys.executable, "-c", ENDING], flavour="vllm", write=lambda line: None)
    try:
        with pytest.raises(ServerBroken) as broken:
            collect_with_bar(collection, quiet=True, watch=server.check_alive)
    finally:
        server.stop()
    assert "ended with status 0" in str(broken.value)
    assert str(broken.value).endswith("\nthe engine died")
    collection.refresh_from_db()
    assert (collection.state, collection.ended) == (Collection.State.RUNNING, 0)
