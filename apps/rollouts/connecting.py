"""Connect what a collection's rollouts share, from its row and its snapshot."""

import time

import msgspec

from apps.environments.connecting import connect_environment
from apps.gym.agent import Harness
from apps.gym.outbound import Outbound
from apps.policies.connecting import connect_policy
from apps.rollouts.models import Collection
from apps.rollouts.running import Setting

FRESH_SECONDS = 5.0
"""How long a connected setting is used before its rows are read again, so that a mended endpoint is picked up."""


def connect_setting(collection: Collection, outbound: Outbound) -> Setting:
    """The harness and sampling are those of the plan; endpoints and keys are those of now."""
    planned = {**collection.snapshot["agent"], "sampling": collection.snapshot["sampling"]}
    return Setting(
        policy_model_id=collection.policy_model_id,
        environment_id=collection.environment_id,
        policy=connect_policy(collection.policy_model, outbound),
        server=connect_environment(collection.environment, outbound),
        harness=msgspec.convert(planned, Harness),
        rollout_timeout=collection.rollout_timeout,
    )


class Settings:
    """The settings in use by a worker, at most FRESH_SECONDS old. Used by the database thread alone."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound
        self._known: dict[int, tuple[float, Setting]] = {}

    def get(self, collection_id: int) -> Setting:
        """Raises what connecting raises: a key that cannot be read, a built-in that is gone."""
        known = self._known.get(collection_id)
        if known is None or time.monotonic() - known[0] > FRESH_SECONDS:
            rows = Collection.objects.select_related("policy_model", "environment", "agent")
            known = (time.monotonic(), connect_setting(rows.get(pk=collection_id), self._outbound))
            self._known[collection_id] = known
        return known[1]
