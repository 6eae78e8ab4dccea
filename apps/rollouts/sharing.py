"""Share global limits among the live workers: what this one may still start of each model and environment."""

from collections import Counter
from typing import NamedTuple

from apps.rollouts.breaking import Endpoint, Shut, take_trial
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
    """How many of this worker's rollouts run, by policy model, environment and collection."""

    def __init__(
        self, running: list[tuple[Claim, Setting]], *, lease: int, live: list[tuple[int, str]], group: str = ""
    ) -> None:
        """`live` are the workers that claim, this one among them, with their groups."""
        self.lease = lease
        self.live = live
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
        models, environments, collections = Limits(), Limits(), Limits()
        judged: dict[int, set[int]] = {}
        for row in Collection.objects.filter(state=Collection.State.RUNNING).values_list(*_LIMITS).order_by():
            pk, concurrency, model, of_model, model_group, environment, of_environment, environment_group, judge = row
            group = model_group or environment_group
            models.add(model, of_model, group)
            environments.add(environment, of_environment, group)
            if judge is not None:
                judged.setdefault(judge, set()).add(environment)
            if concurrency is not None:
                collections.add(pk, concurrency, group)
        models_left, environments_left = self._left(models, self.models), self._left(environments, self.environments)
        for endpoint, state in shut.items():
            held = [(models_left if endpoint.kind == "policy_model" else environments_left, endpoint.pk)]
            if endpoint.kind == "policy_model":
                # A judge that fails holds back what it would have to judge.
                held += [(environments_left, pk) for pk in judged.get(endpoint.pk, ())]
            held = [(left, pk) for left, pk in held if pk in left]
            trial = state.due and any(left[pk] > 0 for left, pk in held) and take_trial(endpoint, state)
            for left, pk in held:
                left[pk] = min(left[pk], int(trial))
        return Slots(
            seats,
            models_left,
            environments_left,
            self._left(collections, self.collections),
            running=self.running,
            suspects=self.suspects,
            alone=self.alone,
            yields=self._share({self.group}).rank == 0,
            group=self.group,
        )

    def _left(self, limits: "Limits", used: Counter[int]) -> dict[int, int]:
        """Of what this worker's group may use; an endpoint that several groups use is shared by all their workers."""
        return {
            pk: self._share(groups).part(limits.numbers[pk]) - used[pk]
            for pk, groups in limits.groups.items()
            if self.group in groups
        }

    def _share(self, groups: set[str]) -> Share:
        return Share.of(self.lease, [worker for worker, group in self.live if group in groups])


_LIMITS = (
    "pk",
    "concurrency",
    "policy_model_id",
    "policy_model__concurrency",
    "policy_model__worker_group",
    "environment_id",
    "environment__concurrency",
    "environment__worker_group",
    "environment__judge_model_id",
)


class Limits:
    """Limits of rollouts in flight by id, and which groups of workers use what they are of."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.groups: dict[int, set[str]] = {}

    def add(self, pk: int, number: int, group: str) -> None:
        self.numbers[pk] = number
        self.groups.setdefault(pk, set()).add(group)
