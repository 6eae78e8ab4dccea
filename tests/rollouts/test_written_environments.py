"""An environment of the operator's own that breaks costs its own rollouts, and neither the worker nor the others."""

import pytest
from asgiref.sync import async_to_sync

from apps.gym.written import Environment
from apps.gym.written.registry import WRITTEN
from apps.rollouts.models import Rollout
from apps.rollouts.steering.local_worker import finish_collection
from tests.factories import make_environment, make_row
from tests.rollouts.work import plan

pytestmark = pytest.mark.usefixtures("migrated")


class Leaving(Environment):
    """Leaves the process where its row says so."""

    async def verify(self, attempt):
        if self.row.get("leaves"):
            raise SystemExit(3)
        return 1.0


def test_a_verifier_that_would_end_the_process_ends_its_rollout(monkeypatch, settings):
    settings.WORKER_BACKGROUND_JOBS = []
    monkeypatch.setitem(WRITTEN, "leaving", Leaving)
    make_environment(slug="leaving", builtin="leaving")
    rows = [{**make_row(f"What is {n} * 3?", str(n * 3)), "leaves": n == 2} for n in range(4)]
    planned = plan(rows, environment="leaving", repeats=1)
    ended = async_to_sync(finish_collection)(planned, progress=lambda _: None)
    assert (ended.completed, ended.failed) == (3, 1)
    failed = Rollout.objects.get(status="failed")
    assert (failed.error_kind, failed.error_message) == ("verifier_error", "leaving: verify: SystemExit: 3")
