"""Share global limits among the live workers: what this one may still start of each model and environment."""

from collections import Counter
from typing import Any, NamedTuple

from apps.rollouts.breaking import Endpoint, Shut, take_trial
from apps.rollouts.claiming import Claim, Slots, usable_by
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
    """How many of this worker's rollouts run, by policy model, environment and collection."""

    def __init__(self, running: list[tuple[Claim, Setting]], share: Share, group: str = "") -> None:
        self.share = share
        self.group = group
        self.running = len(running)
        self.suspects = sum(claim.lost > 0 for claim, _ in running)
        self.alone = any(claim.lost > 1 for claim, _ in running)
        self.models = Counter(setting.policy_model_id for _, setting in running)
        self.environments = Counter(setting.environment_id for _, setting in running)
        self.collections = Counter(claim.collection_id for claim, _ in running)

    def slots(self, seats: int, shut: dict[Endpoint, Shut]) -> Slots:
        """What is left of every limit; limits are global, so a worker takes its share of them.

        An endpoint whose breaker is open has no slots, but for one where this worker wins the right to try it.
        """
        collections = Collection.objects.filter(usable_by(self.group), state=Collection.State.RUNNING)
        limited = collections.filter(concurrency__isnull=False).values_list("pk", "concurrency")
        models = collections.values_list("policy_model_id", "policy_model__concurrency").distinct()
        environments = collections.values_list("environment_id", "environment__concurrency").distinct()
        models_left = self._left(models, self.models)
        environments_left = self._left(environments, self.environments)
        for endpoint, state in shut.items():
            left = models_left if endpoint.kind == "policy_model" else environments_left
            if endpoint.pk in left:
                left[endpoint.pk] = int(state.due and left[endpoint.pk] > 0 and take_trial(endpoint, state))
        return Slots(
            seats,
            models_left,
            environments_left,
            self._left(limited, self.collections),
            running=self.running,
            suspects=self.suspects,
            alone=self.alone,
            yields=self.share.rank == 0,
            group=self.group,
        )

    def _left(self, limits: Any, used: Counter[int]) -> dict[int, int]:
        return {pk: self.share.part(limit) - used[pk] for pk, limit in limits.order_by()}
