"""Share global limits among the live workers: what this one may still start of each model and environment."""

from typing import Any, NamedTuple

from apps.rollouts.claiming import Claim, Slots
from apps.rollouts.models import Collection
from apps.rollouts.running import Setting


class Share(NamedTuple):
    """Which part of every global limit is this worker's: the parts of all live workers add up to the limit."""

    rank: int
    workers: int

    @classmethod
    def of(cls, lease: int, live: list[int]) -> "Share":
        return cls(live.index(lease), len(live)) if lease in live else cls(0, max(1, len(live)))

    def part(self, limit: int) -> int:
        return limit // self.workers + (self.rank < limit % self.workers)


class InUse:
    """How many of this worker's rollouts run, by policy model and by environment."""

    def __init__(self, running: list[tuple[Claim, Setting]], share: Share) -> None:
        self.models: dict[int, int] = {}
        self.environments: dict[int, int] = {}
        self.share = share
        for _, setting in running:
            self.models[setting.policy_model_id] = self.models.get(setting.policy_model_id, 0) + 1
            self.environments[setting.environment_id] = self.environments.get(setting.environment_id, 0) + 1

    def slots(self, seats: int) -> Slots:
        """What is left of every limit; limits are global, so a worker takes its share of them."""
        collections = Collection.objects.filter(state=Collection.State.RUNNING)
        models = collections.values_list("policy_model_id", "policy_model__concurrency").distinct()
        environments = collections.values_list("environment_id", "environment__concurrency").distinct()
        return Slots(seats, self._left(models, self.models), self._left(environments, self.environments))

    def _left(self, limits: Any, used: dict[int, int]) -> dict[int, int]:
        return {pk: self.share.part(limit) - used.get(pk, 0) for pk, limit in limits}
